// Payload copies between buffers of any alignment.
//
// From 2 KiB on the C library's memcpy uses `rep movsb` if the processor reports it as fast. On Zen
// 3 and 4 it drops to a seventeenth of the speed when the destination's offset in its page is a few
// bytes above the source's, as with a page-aligned slot and a malloc'ed buffer. Plain vector moves
// do not slow down.
#pragma once

#include <cstddef>
#include <cstring>

namespace pith {

inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  // Shorter copies do not use `rep movsb`; for longer ones memcpy's streaming stores spare the
  // caches.
  constexpr std::size_t shortest = 2048;
  constexpr std::size_t longest = std::size_t{1} << 20;
  constexpr std::size_t chunk = 64;
  if (bytes >= shortest && bytes <= longest) {
    for (; bytes >= chunk; bytes -= chunk, to += chunk, from += chunk) {
      std::memcpy(to, from, chunk);  // compiles to a few vector moves
#if defined(__GNUC__)
      asm volatile("" ::: "memory");  // keeps the compiler from merging the loop
#endif
    }
  }
  // The pointers of an empty message may be null, which memcpy does not allow.
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace pith
