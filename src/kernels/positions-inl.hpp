// The positions of the set bits of a word as a list; included once per target.
#if defined(PITH_KERNELS_POSITIONS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef PITH_KERNELS_POSITIONS_INL
#undef PITH_KERNELS_POSITIONS_INL
#else
#define PITH_KERNELS_POSITIONS_INL
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/set_bits.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET != HWY_SCALAR

// Writes the positions of the four lowest set bits and clears them; garbage where there are fewer.
HWY_INLINE void write_four(std::uint64_t& bits, std::uint32_t base, std::uint32_t* out) {
  for (unsigned i = 0; i < 4; ++i, bits &= bits - 1) {
    out[i] = base + static_cast<std::uint32_t>(std::countr_zero(bits));
  }
}

// Writes base + the position of each set bit, ascending, and returns their number, for which there
// must be room. Up to 8 elements after them may be overwritten, as far as `room` allows.
HWY_INLINE std::size_t write_positions(std::uint64_t bits, std::uint32_t base, std::uint32_t* out,
                                       std::size_t room) {
  const auto count = static_cast<std::size_t>(std::popcount(bits));
  if (count + 8 > room) {
    for (std::size_t i = 0; i < count; ++i, bits &= bits - 1) {
      out[i] = base + static_cast<std::uint32_t>(std::countr_zero(bits));
    }
    return count;
  }
  // Words with few bits are common, and looking at every byte would cost more. The two branches
  // depend on the count in steps of four, so they are seldom mispredicted.
  if (count <= 8) {
    write_four(bits, base, out);
    if (count > 4) write_four(bits, base, out + 4);
    return count;
  }
  const hn::CappedTag<std::uint32_t, 8> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  std::size_t done = 0;
  for (unsigned byte = 0; byte < 8; ++byte, bits >>= 8, base += 8) {
    const SetBits& table = set_bits[bits & 0xff];
    const auto from = hn::Set(d, base);
    for (std::size_t i = 0; i < 8; i += hn::Lanes(d)) {
      const auto positions = hn::PromoteTo(d, hn::LoadU(bytes, table.data() + i));
      hn::StoreU(hn::Add(from, positions), d, out + done + i);
    }
    done += static_cast<std::size_t>(std::popcount(bits & 0xff));
  }
  return count;
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
