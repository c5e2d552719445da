// Payload copies between buffers of any alignment.
//
// From 2 KiB on the C library's memcpy uses `rep movsb` if the processor reports it as fast. On Zen
// 3 and 4 it drops to a seventeenth of the speed when the destination's offset in its page is a few
// bytes above the source's, as with a page-aligned slot and a malloc'ed buffer. Plain vector moves
// do not slow down.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

#if defined(__SSE2__)
inline constexpr bool can_pass_caches = true;
#else
inline constexpr bool can_pass_caches = false;
#endif

// The same to memory that another core will read, past the caches where the processor can: it need
// not take the lines from that core, which finds them in memory. What is stored later is seen
// later. Precondition: `to` is a multiple of 16.
inline void copy_bytes_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__SSE2__)
  constexpr std::size_t parts = 4;
  constexpr std::size_t line = parts * sizeof(__m128i);
  for (; bytes >= line; bytes -= line, to += line, from += line) {
    __m128i taken[parts];
    std::memcpy(taken, from, line);
    auto* const out = reinterpret_cast<__m128i*>(to);
    for (std::size_t i = 0; i < parts; ++i) _mm_stream_si128(out + i, taken[i]);
  }
  _mm_sfence();
#endif
  copy_bytes(to, from, bytes);
}

}  // namespace pith
