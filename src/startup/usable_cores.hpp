// Which CPUs a rank may use, and how many the ranks of a host have between them. That is less than
// the host has where a launcher binds them, or a container limits them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pith {

struct UsableCores {
  std::vector<std::uint64_t> mask;  // of CPUs, by the system's numbers; empty: not known
  // The tightest limit of time among its control groups, in cores, rounded up; 0: none. Ranks with
  // the same group share it.
  std::uint32_t limit = 0;
  std::uint64_t group = 0;

  static UsableCores of_this_thread();
  // Finds the limit. `membership` is what /proc/self/cgroup says, `mount` where control groups are
  // seen: version 2, or version 1 with a folder for each controller.
  void read_limit(std::string_view membership, const std::string& mount);

  std::string pack() const;
  static UsableCores unpack(std::string_view packed);
};

// Of ranks of one host. 0: not known.
std::size_t count_cores(std::span<const UsableCores> ranks);

// More ranks than cores: waiting must not keep the others from running.
bool are_oversubscribed(std::span<const UsableCores> ranks);

}  // namespace pith
