// How many descriptors this process may open (RLIMIT_NOFILE). Its soft limit is raised only where a
// descriptor of ours finds no room under it, and only so far: programs may rely on low numbers.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

namespace pith {

// Makes room for so many more, raising the soft limit if need be; false where the hard limit, or
// the system, does not give that much. Thread-safe.
bool make_descriptor_room(std::size_t more);
// Where numbers near that of `fd`, which is open, reach the soft limit: room for those that others
// open meanwhile, the system's own functions and the kernel too.
void keep_descriptor_room(int fd);
// How many more there may be under the hard limit; counts up to `most`.
std::size_t descriptors_left(std::size_t most);
// Whether not one more can be opened.
bool descriptors_are_used_up();
// As numbers, and in words for errors.
std::size_t hard_descriptor_limit();
std::string descriptor_limit_text();

// `open` returns a descriptor or -1 with errno. Tries again where the limit could be raised; other
// threads may be faster.
template <class Open>
int open_with_room(const Open& open) {
  constexpr int tries = 100;
  for (int left = tries; left > 0; --left) {
    const int fd = open();
    if (fd >= 0) keep_descriptor_room(fd);
    if (fd >= 0 || errno != EMFILE) return fd;
    if (!make_descriptor_room(1)) break;
  }
  errno = EMFILE;
  return -1;
}

}  // namespace pith
