// Indices to bytes; the format is in index_code.hpp. Portable code without SIMD: a few cycles an
// index.
#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/index_code.hpp"
#include "kernels/sparse.hpp"

namespace pith::kernels {

namespace {

static_assert(std::endian::native == std::endian::little);

void put_bytes(std::byte* out, std::uint64_t bits, std::size_t bytes) {
  std::memcpy(out, &bits, bytes);
}

// Packs bits from bit 0 of byte 0 on; whole words are written when they are full.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}

  // n <= 64; bits of `bits` above n must be zero.
  void put(std::uint64_t bits, unsigned n) {
    word_ |= bits << filled_;
    filled_ += n;
    if (filled_ < 64) return;
    put_bytes(out_, word_, sizeof word_);
    out_ += sizeof word_;
    filled_ -= 64;
    word_ = filled_ == 0 ? 0 : bits >> (n - filled_);
  }
  // Writes the last bytes and returns the end.
  std::byte* finish() {
    const std::size_t bytes = (filled_ + 7) / 8;
    put_bytes(out_, word_, bytes);
    return out_ + bytes;
  }

 private:
  std::byte* out_;
  std::uint64_t word_ = 0;
  unsigned filled_ = 0;
};

// Sets single bits at ascending positions; all others are zero.
class SparseBitWriter {
 public:
  explicit SparseBitWriter(std::byte* out) : out_(out) {}

  void set(std::size_t position) {
    while (position >= base_ + 64) flush();
    word_ |= std::uint64_t{1} << (position - base_);
  }
  // Pads with zeros to `bytes` bytes.
  void finish(std::size_t bytes) {
    while (8 * bytes > base_ + 64) flush();
    put_bytes(out_ + base_ / 8, word_, bytes - base_ / 8);
  }

 private:
  void flush() {
    put_bytes(out_ + base_ / 8, word_, sizeof word_);
    base_ += 64;
    word_ = 0;
  }
  std::byte* out_;
  std::size_t base_ = 0;
  std::uint64_t word_ = 0;
};

void encode_bitmap(std::span<const std::uint32_t> indices, std::uint32_t first, std::size_t span,
                   std::byte* out) {
  SparseBitWriter bits(out);
  for (const std::uint32_t index : indices) bits.set(index - first);
  bits.finish(IndexBlock::bitmap_bytes(span));
}

// Four at a time: their low bits fit into one word of 64.
void encode_low(std::span<const std::uint32_t> indices, std::uint32_t first, unsigned form,
                std::byte* out) {
  if (form == 0) return;
  const std::uint64_t mask = (std::uint64_t{1} << form) - 1;
  const auto low = [&](std::size_t i) { return (indices[i] - first) & mask; };
  BitWriter bits(out);
  std::size_t i = 0;
  for (; i + 4 <= indices.size(); i += 4) {
    bits.put(low(i) | low(i + 1) << form | low(i + 2) << 2 * form | low(i + 3) << 3 * form,
             4 * form);
  }
  for (; i < indices.size(); ++i) bits.put(low(i), form);
  bits.finish();
}

void encode_high(std::span<const std::uint32_t> indices, std::uint32_t first, std::size_t span,
                 unsigned form, std::byte* out) {
  SparseBitWriter bits(out);
  for (std::size_t i = 0; i < indices.size(); ++i) bits.set(((indices[i] - first) >> form) + i);
  bits.finish(IndexBlock::high_bytes(indices.size(), span, form));
}

std::size_t encode_block(std::span<const std::uint32_t> indices, std::uint32_t first,
                         std::size_t span, std::byte* out) {
  const std::size_t count = indices.size();
  const unsigned form = count == 0 ? 0 : IndexBlock::best_form(count, span);
  const auto word = static_cast<std::uint32_t>(count) | form << 24;
  std::memcpy(out, &word, sizeof word);
  out += IndexBlock::header_bytes;
  if (form == IndexBlock::bitmap) {
    encode_bitmap(indices, first, span, out);
  } else if (count > 0) {
    encode_low(indices, first, form, out);
    encode_high(indices, first, span, form, out + IndexBlock::low_bytes(count, form));
  }
  return IndexBlock::header_bytes + IndexBlock::payload_bytes(count, span, form);
}

// How many of the ascending indices are below `end`: galloping, then binary search.
std::size_t count_below(std::span<const std::uint32_t> indices, std::uint64_t end) {
  std::size_t step = 64;
  while (step < indices.size() && indices[step] < end) step *= 2;
  const auto from = indices.begin() + static_cast<std::ptrdiff_t>(step == 64 ? 0 : step / 2);
  const auto to = indices.begin() + static_cast<std::ptrdiff_t>(std::min(step, indices.size()));
  return static_cast<std::size_t>(std::lower_bound(from, to, end) - indices.begin());
}

}  // namespace

void encode_indices(const EncodeIndicesKernel::Args& args) {
  std::span<const std::uint32_t> left(args.indices, args.count);
  std::size_t written = 0;
  for (std::size_t offset = 0; offset < args.span; offset += IndexBlock::elements) {
    const std::size_t span = std::min(IndexBlock::elements, args.span - offset);
    const std::uint64_t first = args.first + std::uint64_t{offset};
    const std::size_t count = count_below(left, first + span);
    written += encode_block(left.first(count), static_cast<std::uint32_t>(first), span,
                            args.out + written);
    left = left.subspan(count);
  }
  *args.written = written;
}

}  // namespace pith::kernels
