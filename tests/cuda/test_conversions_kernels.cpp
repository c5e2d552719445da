// What a device's own conversions give, as the toolkit's headers say on a host, against ours.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "cuda/kernels/numbers.hpp"
#include "tests/catch.hpp"

using namespace pith::cuda;

namespace {

float decoded(Half code) { return __half2float(__half(__half_raw{code.bits})); }
float decoded(Bfloat code) { return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{code.bits})); }
float decoded(F8e4m3 code) { return __half2float(__nv_cvt_fp8_to_halfraw(code.bits, __NV_E4M3)); }
float decoded(F8e5m2 code) { return __half2float(__nv_cvt_fp8_to_halfraw(code.bits, __NV_E5M2)); }

void encode_to(Half& code, float value) {
  code.bits = static_cast<__half_raw>(__float2half_rn(value)).x;
}
void encode_to(Bfloat& code, float value) {
  code.bits = static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x;
}
void encode_to(F8e4m3& code, float value) {
  code.bits = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}
void encode_to(F8e5m2& code, float value) {
  code.bits = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
}

template <class Format>
void check_all_codes() {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 2 * Format::sign; ++bits) {
    const Format code{static_cast<typename Format::Bits>(bits)};
    const auto ours = bits_as<std::uint32_t>(decode(code));
    wrong += ours != bits_as<std::uint32_t>(canonical(decoded(code)));
  }
  CHECK(wrong == 0);
}

// Of 8 bits NaN and infinities are not asked for.
template <class Format>
void check_values(std::uint32_t begin, std::uint64_t end, std::uint32_t stride) {
  std::uint32_t wrong = 0;
  for (std::uint64_t bits = begin; bits < end; bits += stride) {
    const auto value = bits_as<float>(static_cast<std::uint32_t>(bits));
    if (sizeof(Format) == 1 && magnitude_of(value) >= float_infinity) continue;
    Format theirs;
    encode_to(theirs, value);
    wrong += encode<Format>(value).bits != theirs.bits;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEMPLATE_TEST_CASE("a device's own conversions have the bits of ours", "", Half, Bfloat, F8e4m3,
                   F8e5m2) {
  check_all_codes<TestType>();
  check_values<TestType>(0, std::uint64_t{1} << 32, 1021);
  // Ties, and the values beside them.
  for (std::uint32_t near = 0; near < 3; ++near) {
    check_values<TestType>(0xfffu + near, std::uint64_t{1} << 32, 0x1000);
  }
}
