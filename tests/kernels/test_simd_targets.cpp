// What dispatch chooses from, against what the system says of the CPU.
#include <hwy/targets.h>

#include <fstream>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string>

#include "tests/catch.hpp"

namespace pith::kernels::test {

#if HWY_ARCH_X86
namespace {

std::set<std::string> flags_of_cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

bool has_all(const std::set<std::string>& flags, std::initializer_list<const char*> wanted) {
  for (const char* flag : wanted) {
    if (!flags.contains(flag)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("the instruction sets that the system tells of are used, and no others", "[simd]") {
  const std::set<std::string> flags = flags_of_cpu();
  REQUIRE_FALSE(flags.empty());
  const bool sse4 = has_all(flags, {"ssse3", "sse4_1", "sse4_2", "pclmulqdq", "aes"});
  const bool avx2 = sse4 && has_all(flags, {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm"});
  const bool avx512 =
      avx2 && has_all(flags, {"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx512cd"});
  const std::int64_t found = hwy::SupportedTargets();
  CHECK(((found & HWY_SSE4) != 0) == sse4);
  CHECK(((found & HWY_AVX2) != 0) == avx2);
  CHECK(((found & HWY_AVX3) != 0) == avx512);
}
#endif

TEST_CASE("there is always an instruction set to run", "[simd]") {
  CHECK((hwy::SupportedTargets() & HWY_STATIC_TARGET) != 0);
}

}  // namespace pith::kernels::test
