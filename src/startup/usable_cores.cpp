#include "startup/usable_cores.hpp"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>

#include "core/packing.hpp"

namespace pith {

namespace {

constexpr std::size_t word_bits = 64;
constexpr std::size_t most_words = 1024;
using Mask = std::vector<std::uint64_t>;

// Doubles the mask until the kernel's fits.
Mask mask_of_this_thread() {
  for (Mask mask(16); mask.size() <= most_words; mask.resize(2 * mask.size())) {
    const std::size_t bytes = mask.size() * sizeof mask[0];
    if (sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) == 0) {
      while (!mask.empty() && mask.back() == 0) mask.pop_back();
      return mask;
    }
    if (errno != EINVAL) break;
  }
  return {};
}

void unite(Mask& mask, const Mask& other) {
  mask.resize(std::max(mask.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) mask[i] |= other[i];
}

std::size_t size_of(const Mask& mask) {
  std::size_t count = 0;
  for (const std::uint64_t word : mask) count += static_cast<std::size_t>(std::popcount(word));
  return count;
}

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// Parses "150000 100000" (quota and period in us) to cores, rounded up; 0: no limit.
std::uint32_t cores_in(const std::string& quota_and_period) {
  std::istringstream text(quota_and_period);
  std::int64_t quota = 0;
  std::int64_t period = 0;
  constexpr std::int64_t most = word_bits * most_words;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<std::uint32_t>(std::min(most, (quota - 1) / period + 1));
}

// The limit of one control group, without those of its parents.
std::uint32_t limit_at(const std::string& folder, bool version_2) {
  return cores_in(version_2 ? first_line(folder + "/cpu.max")
                            : first_line(folder + "/cpu.cfs_quota_us") + " " +
                                  first_line(folder + "/cpu.cfs_period_us"));
}

std::uint64_t number_of(const std::string& folder) {
  struct stat status = {};
  return stat(folder.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

// Whether "cpu" is in a list such as "cpu,cpuacct".
bool holds_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "cpu") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

}  // namespace

UsableCores UsableCores::of_this_thread() {
  UsableCores cores;
  cores.mask = mask_of_this_thread();
  std::ostringstream membership;
  membership << std::ifstream("/proc/self/cgroup").rdbuf();
  cores.read_limit(membership.str(), "/sys/fs/cgroup");
  return cores;
}

// Lines are "number:controllers:path", in version 2 "0::path". A container may see its own group at
// the mount point while the path is the host's; paths that do not exist set no limit.
void UsableCores::read_limit(std::string_view membership, const std::string& mount) {
  while (!membership.empty()) {
    const std::size_t length = std::min(membership.find('\n'), membership.size());
    const std::string_view line = membership.substr(0, length);
    membership.remove_prefix(std::min(length + 1, membership.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    if (!controllers.empty() && !holds_cpu(controllers)) continue;
    std::string root = mount;
    if (!controllers.empty()) root.append("/").append(controllers);
    for (std::string path(line.substr(second + 1));; path.erase(path.rfind('/'))) {
      const std::uint32_t found = limit_at(root + path, controllers.empty());
      if (found != 0 && (limit == 0 || found < limit)) {
        limit = found;
        group = number_of(root + path);
      }
      if (path.find('/') == path.npos) break;
    }
  }
}

std::string UsableCores::pack() const {
  Packer packer;
  packer.value(limit).value(group).value(static_cast<std::uint32_t>(mask.size()));
  for (const std::uint64_t word : mask) packer.value(word);
  return packer.take();
}

UsableCores UsableCores::unpack(std::string_view packed) {
  Unpacker unpacker(packed);
  UsableCores cores;
  cores.limit = unpacker.value<std::uint32_t>();
  cores.group = unpacker.value<std::uint64_t>();
  const auto words = unpacker.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < words && unpacker.whole(); ++i) {
    cores.mask.push_back(unpacker.value<std::uint64_t>());
  }
  return unpacker.whole() ? cores : UsableCores();
}

std::size_t count_cores(std::span<const UsableCores> ranks) {
  struct Group {
    Mask mask;
    std::size_t limit = ~std::size_t{0};
  };
  std::map<std::uint64_t, Group> groups;  // key 0: ranks without a limit
  Mask all;
  for (const UsableCores& rank : ranks) {
    unite(all, rank.mask);
    Group& group = groups[rank.limit == 0 ? 0 : rank.group];
    unite(group.mask, rank.mask);
    if (rank.limit != 0) group.limit = rank.limit;
  }
  std::size_t granted = 0;
  for (const auto& [number, group] : groups) granted += std::min(size_of(group.mask), group.limit);
  return std::min(size_of(all), granted);
}

bool are_oversubscribed(std::span<const UsableCores> ranks) {
  const std::size_t cores = count_cores(ranks);
  return cores != 0 && ranks.size() > cores;
}

}  // namespace pith
