// How many file descriptors this process may open (RLIMIT_NOFILE). The library raises the soft
// limit only when it needs a descriptor, and only as far as needed: programs may rely on low
// numbers.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

namespace pith {

// Makes room for `more` descriptors, raising the soft limit if needed. Returns false if the hard
// limit or the system does not allow it. Thread-safe.
bool make_descriptor_room(std::size_t more);
// If the number of the open descriptor `fd` is close to the soft limit, makes room for descriptors
// that other code opens, including the C library and the kernel.
void keep_descriptor_room(int fd);
// How many more descriptors the hard limit allows, counting up to `most`.
std::size_t descriptors_left(std::size_t most);
// Whether no further descriptor can be opened.
bool descriptors_are_used_up();
// The hard limit, and both limits as text for errors.
std::size_t hard_descriptor_limit();
std::string descriptor_limit_text();

// `open` returns a descriptor, or -1 and sets errno. Retries after raising the limit, several
// times, since other threads may take the room.
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
