// Which CPUs a rank may use, and how many the ranks of a host have together. Fewer than the host
// has where a launcher binds ranks or a container limits them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pith {

struct UsableCores {
  std::vector<std::uint64_t> mask;  // of CPUs in the system's numbers; empty: not known
  // The tightest CPU-time limit among its control groups, in cores, rounded up; 0: none. Ranks in
  // the same group share it.
  std::uint32_t limit = 0;
  std::uint64_t group = 0;

  static UsableCores of_this_thread();
  // Sets limit and group. `membership`: contents of /proc/self/cgroup. `mount`: where control
  // groups are mounted, version 2 or version 1 with a folder a controller.
  void read_limit(std::string_view membership, const std::string& mount);

  std::string pack() const;
  static UsableCores unpack(std::string_view packed);
};

// The cores that these ranks of one host have together. 0: not known.
std::size_t count_cores(std::span<const UsableCores> ranks);

// True with more ranks than cores: waiting ranks must then yield instead of spinning.
bool are_oversubscribed(std::span<const UsableCores> ranks);

}  // namespace pith
