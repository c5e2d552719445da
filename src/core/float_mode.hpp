// The floating-point mode of all arithmetic: round to nearest, subnormal numbers, no traps. The
// caller's thread may have another mode (torch.set_flush_denormal, code built with -ffast-math,
// fesetround), with which ranks would get different bits.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace pith {

// Sets the mode for its lifetime. Costs one register read if the mode is set already.
class FloatMode {
 public:
  FloatMode() : before_(read()) {
    if (differs()) write(standard);
  }
  ~FloatMode() {
    if (differs()) write(before_);
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  bool differs() const { return (before_ & ~flags) != standard; }

#if defined(__x86_64__)
  using Word = std::uint32_t;
  static constexpr Word standard = 0x1f80;
  static constexpr Word flags = 0x3f;  // exception flags, which record and change nothing
  static Word read() { return _mm_getcsr(); }
  static void write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word standard = 0;
  static constexpr Word flags = 0;
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = std::uint32_t;
  static constexpr Word standard = 0;
  static constexpr Word flags = 0;
  static Word read() { return standard; }
  static void write(Word) {}
#endif

  const Word before_;
};

}  // namespace pith
