// Bytes to indices; the format is in index_code.hpp. Input is not trusted. Each block is checked
// before its loop runs (the number of set bits must equal the count, and the count must fit), so
// that loops need no bounds; that indices ascend and lie in the block is checked after it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode_indices.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/index_code.hpp"
#include "kernels/loop-inl.hpp"
#include "kernels/positions-inl.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void decode_range(const DecodeIndicesKernel::Args& args) { scalar::decode_indices(args); }

#else

// A block whose header has been checked against the bytes available.
struct Block {
  const std::byte* coded;
  std::size_t bytes;     // of the block's payload
  std::size_t readable;  // bytes available from `coded` on, at least `bytes`
  std::size_t count;
  std::size_t span;
  unsigned form;
  std::uint32_t first;
  std::uint32_t* out;
  std::size_t room;  // elements at `out`, at least `count`
};

HWY_INLINE std::uint64_t word_at(const std::byte* bytes, std::size_t n) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, n);
  return word;
}

// Writes base + the position of each set bit; false if their number is not `block.count`.
bool decode_bits(const Block& block, const std::byte* bits, std::size_t bytes, std::uint32_t base) {
  const std::size_t whole = bytes / 8 * 8;
  const std::size_t rest = bytes - whole;
  std::size_t set = 0;
  for (std::size_t i = 0; i < whole; i += 8) {
    set += static_cast<std::size_t>(std::popcount(word_at(bits + i, 8)));
  }
  set += static_cast<std::size_t>(std::popcount(word_at(bits + whole, rest)));
  if (set != block.count) return false;
  std::size_t found = 0;
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = i < whole ? word_at(bits + i, 8) : word_at(bits + i, rest);
    found += write_positions(word, base + static_cast<std::uint32_t>(8 * i), block.out + found,
                             block.room - found);
  }
  return true;
}

bool decode_bitmap(const Block& block) {
  const std::uint32_t last_span = static_cast<std::uint32_t>(block.span - 1);
  return decode_bits(block, block.coded, block.bytes, block.first) &&
         block.out[block.count - 1] - block.first <= last_span;
}

using LowWords = hn::FixedTag<std::uint32_t, 4>;
using LowWord = hn::Vec<LowWords>;

// The low bits of four indices at a time. Eight indices start at a byte boundary; the bits of each
// lie within three of sixteen bytes, which a shuffle moves to its lane.
class LowBits {
 public:
  explicit LowBits(unsigned form) : form_(form) {
    for (unsigned lane = 0; lane < 8; ++lane) {
      const unsigned bit = lane * form;
      shifts_[lane] = bit % 8;
      for (unsigned byte = 0; byte < 4; ++byte) {
        const unsigned from = bit / 8 + byte;
        shuffle_[4 * lane + byte] = static_cast<std::uint8_t>(from < 16 && byte < 3 ? from : 0x80);
      }
    }
  }
  // For indices 8 * eight + 4 * half to + 3; 16 bytes must be readable.
  HWY_INLINE LowWord operator()(const std::byte* eight, std::size_t half) const {
    const hn::FixedTag<std::uint8_t, 16> bytes;
    const LowWords d;
    const auto loaded = hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(eight));
    const auto spread = hn::TableLookupBytesOr0(loaded, hn::Load(bytes, shuffle_ + 16 * half));
    const LowWord shifted = hn::Shr(hn::BitCast(d, spread), hn::Load(d, shifts_ + 4 * half));
    return hn::And(shifted, hn::Set(d, (1u << form_) - 1));
  }

 private:
  unsigned form_;
  HWY_ALIGN std::uint8_t shuffle_[32];
  HWY_ALIGN std::uint32_t shifts_[8];
};

// first + (position - i) << form | low bits, for the four indices from place i on.
HWY_INLINE LowWord join(const Block& block, LowWord positions, std::size_t i, LowWord low) {
  const LowWords d;
  const LowWord numbers = hn::Add(hn::Set(d, static_cast<std::uint32_t>(i)), hn::Iota(d, 0));
  const LowWord high = hn::ShiftLeftSame(hn::Sub(positions, numbers), static_cast<int>(block.form));
  return hn::Add(hn::Set(d, block.first), hn::Or(high, low));
}

// Turns the positions of the high part into indices, eight at a time. The last ones, and those
// whose low bits end near the end of the readable bytes, go through padded copies.
void join_all(const Block& block) {
  const LowWords d;
  const LowBits low_bits(block.form);
  for (std::size_t i = 0; i < block.count; i += 8) {
    const std::size_t at = i / 8 * block.form;
    const std::byte* eight = block.coded + at;
    std::uint32_t* out = block.out + i;
    HWY_ALIGN std::byte last_bytes[16] = {};
    HWY_ALIGN std::uint32_t last_out[8] = {};
    if (at + sizeof last_bytes > block.readable) {
      std::memcpy(last_bytes, eight, block.readable - at);
      eight = last_bytes;
    }
    const std::size_t n = std::min<std::size_t>(8, block.count - i);
    if (n < 8) {
      std::memcpy(last_out, out, n * sizeof *out);
      out = last_out;
    }
    for (std::size_t half = 0; half < 2; ++half) {
      const LowWord positions = hn::LoadU(d, out + 4 * half);
      const LowWord joined = join(block, positions, i + 4 * half, low_bits(eight, half));
      hn::StoreU(joined, d, out + 4 * half);
    }
    if (n < 8) std::memcpy(block.out + i, last_out, n * sizeof *out);
  }
}

bool decode_elias_fano(const Block& block) {
  const std::size_t low_bytes = IndexBlock::low_bytes(block.count, block.form);
  if (!decode_bits(block, block.coded + low_bytes, block.bytes - low_bytes, 0)) return false;
  join_all(block);
  std::uint32_t falls = 0;
  for (std::size_t i = 1; i < block.count; ++i) {
    falls |= block.out[i] - block.first <= block.out[i - 1] - block.first ? 1u : 0u;
  }
  return falls == 0 && block.out[block.count - 1] - block.first < block.span;
}

void decode_range(const DecodeIndicesKernel::Args& args) {
  *args.result = {};
  std::size_t read = 0;
  std::size_t found = 0;
  for (std::size_t offset = 0; offset < args.span; offset += IndexBlock::elements) {
    if (args.bytes - read < IndexBlock::header_bytes) return;
    const auto word = static_cast<std::uint32_t>(word_at(args.coded + read, 4));
    read += IndexBlock::header_bytes;
    Block block{};
    block.coded = args.coded + read;
    block.readable = args.bytes - read;
    block.count = word & 0xffffffu;
    block.form = word >> 24;
    block.span = std::min(IndexBlock::elements, args.span - offset);
    block.first = args.first + static_cast<std::uint32_t>(offset);
    block.out = args.indices + found;
    block.room = args.capacity - found;
    if (block.count > block.span || block.count > block.room) return;
    if (block.form > IndexBlock::most_low_bits && block.form != IndexBlock::bitmap) return;
    block.bytes = IndexBlock::payload_bytes(block.count, block.span, block.form);
    if (block.bytes > block.readable) return;
    if (block.count > 0) {
      const bool bitmap = block.form == IndexBlock::bitmap;
      if (!(bitmap ? decode_bitmap(block) : decode_elias_fano(block))) return;
    }
    read += block.bytes;
    found += block.count;
  }
  *args.result = {true, found, read};
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(decode_range);

void decode_indices(const DecodeIndicesKernel::Args& args) {
  HWY_DYNAMIC_DISPATCH(decode_range)(args);
}

}  // namespace pith::kernels
#endif
