// Copies of payload between buffers whose alignment is nobody's choice.
//
// The C library's memcpy uses `rep movsb` from 2 KiB on where the processor claims to be fast at
// it. On Zen 3 and 4 that falls to a seventeenth of the speed when the destination lies a few bytes
// behind the source in its page, which is exactly how a page-aligned slot and a malloc'ed buffer
// lie. Plain vector moves have no such cliff.
#pragma once

#include <cstddef>
#include <cstring>

namespace pith {

inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  // Above, memcpy's streaming stores spare the caches; below, it uses no `rep movsb`.
  constexpr std::size_t shortest = 2048;
  constexpr std::size_t longest = std::size_t{1} << 20;
  constexpr std::size_t chunk = 64;
  if (bytes >= shortest && bytes <= longest) {
    for (; bytes >= chunk; bytes -= chunk, to += chunk, from += chunk) {
      std::memcpy(to, from, chunk);  // a few vector moves
#if defined(__GNUC__)
      asm volatile("" ::: "memory");  // or the compiler makes one memcpy of the loop
#endif
    }
  }
  // Empty messages may have no address at all.
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace pith
