#include "transport/descriptor_table.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace pith {

namespace {

thread_local bool own_table = false;

// Closes the numbers from `first` to `last`. The C library may be too old to have it, and the
// thread sanitizer knows connections by their numbers alone, whichever table they are of.
bool close_numbers(unsigned first, unsigned last, unsigned flags) {
#if defined(SYS_close_range) && !defined(__SANITIZE_THREAD__)
  return ::syscall(SYS_close_range, first, last, flags) == 0;
#else
  static_cast<void>(first), static_cast<void>(last), static_cast<void>(flags);
  return false;
#endif
}

}  // namespace

bool leave_descriptor_table(std::span<const int> kept) {
  constexpr unsigned unshare = 2;  // CLOSE_RANGE_UNSHARE
  constexpr std::size_t standard = 3;
  std::array<unsigned, standard + 8> left{0, 1, 2};
  std::size_t count = standard;
  for (const int fd : kept) {
    if (fd >= static_cast<int>(standard)) left[count++] = static_cast<unsigned>(fd);
  }
  std::sort(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(count));
  // From here on the table is this thread's alone: what lies above was not even copied.
  if (!close_numbers(left[count - 1] + 1, ~0u, unshare)) return false;
  own_table = true;
  for (std::size_t i = standard; i < count; ++i) {
    if (left[i] > left[i - 1] + 1) close_numbers(left[i - 1] + 1, left[i] - 1, 0);
  }
  return true;
}

bool has_own_descriptor_table() { return own_table; }

}  // namespace pith
