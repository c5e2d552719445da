#include "nccl/rdma_devices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace pith::nccl {

namespace {

struct Port {
  std::string device;
  std::string number;  // empty: all
};

std::vector<Port> read_list(std::string_view list) {
  std::vector<Port> named;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    const std::size_t colon = std::min(one.find(':'), one.size());
    const std::string_view number = one.substr(std::min(colon + 1, one.size()));
    if (colon > 0) named.push_back({std::string(one.substr(0, colon)), std::string(number)});
  }
  return named;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string rdma_devices(const std::string& list, const std::filesystem::path& folder) {
  std::string_view rest = list;
  const auto skip = [&](char mark) {
    const bool is_there = rest.starts_with(mark);
    if (is_there) rest.remove_prefix(1);
    return is_there;
  };
  const bool excludes = skip('^');
  const bool in_full = skip('=');
  const std::vector<Port> named = read_list(rest);
  if (named.empty()) return {};
  std::vector<std::string> left;
  for (const std::string& device : names_in(folder)) {
    for (const std::string& number : names_in(folder / device / "ports")) {
      const bool is_named = std::ranges::any_of(named, [&](const Port& one) {
        const bool fits = in_full ? one.device == device : device.starts_with(one.device);
        return fits && (one.number.empty() || one.number == number);
      });
      if (is_named != excludes) left.push_back(fmt::format("{}:{}", device, number));
    }
  }
  if (left.empty() && in_full && !excludes) {
    for (const Port& one : named) {
      left.push_back(fmt::format("{}:{}", one.device, one.number.empty() ? "1" : one.number));
    }
  }
  return fmt::format("{}", fmt::join(left, ","));
}

}  // namespace pith::nccl
