// The functions of libhwy that Highway's dispatch needs: which instruction sets this CPU has.
// Defined here so that Highway's headers are enough to build Pith and nothing is needed at run
// time. Knows only instruction sets that kernels profit from; other CPUs run the compiler's
// baseline.
#include <hwy/targets.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "core/log.hpp"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace pith::kernels {

namespace {

#if HWY_ARCH_X86

bool has_bit(unsigned leaf, unsigned bit) {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(leaf, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit) != 0;
}

bool has_sse4() {
  return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
         __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("aes");
}

// For the other features, the compiler's tests include whether the operating system saves the wide
// registers.
bool has_avx2() {
  constexpr unsigned f16c = 1u << 29;
  constexpr unsigned lzcnt = 1u << 5;
  return has_sse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_bit(1, f16c) &&
         has_bit(0x80000001u, lzcnt);
}

// What Highway's AVX3 needs; its later versions also need cd.
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd");
}

std::int64_t detect() {
  __builtin_cpu_init();
  std::int64_t targets = HWY_STATIC_TARGET;
  if (has_sse4()) targets |= HWY_SSE4;
  if (has_avx2()) targets |= HWY_AVX2;
  if (has_avx512()) targets |= HWY_AVX3;
  return targets;
}

#else

std::int64_t detect() { return HWY_STATIC_TARGET; }

#endif

// 0: use those that the CPU has.
std::atomic<std::int64_t>& forced_targets() {
  static std::atomic<std::int64_t> targets{0};
  return targets;
}

}  // namespace

}  // namespace pith::kernels

// Weak: a program that links libpith.a and libhwy must not get two definitions.
namespace hwy {

[[gnu::weak]] ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

[[gnu::weak]] std::int64_t SupportedTargets() {
  const std::int64_t forced = pith::kernels::forced_targets().load();
  return forced != 0 ? forced : pith::kernels::detect();
}

[[gnu::weak]] void SetSupportedTargetsForTest(std::int64_t targets) {
  pith::kernels::forced_targets().store(targets);
  GetChosenTarget().DeInit();
}

// For Highway's assertions, which only sanitized builds have.
[[gnu::weak]] void Abort(const char* file, int line, const char* format, ...) {
  char text[500];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  pith::log(pith::LogLevel::error, std::string(file) + ":" + std::to_string(line) + ": " + text);
  __builtin_trap();
}

}  // namespace hwy
