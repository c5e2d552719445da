#include <cstring>
#include <span>

#include "kernels/index_code.hpp"
#include "kernels/sparse_scalar.hpp"

namespace pith::kernels::scalar {

namespace {

void set_bit(std::byte* bytes, std::size_t bit) {
  bytes[bit / 8] |= std::byte{1} << static_cast<int>(bit % 8);
}
bool bit_at(const std::byte* bytes, std::size_t bit) {
  return (bytes[bit / 8] >> static_cast<int>(bit % 8) & std::byte{1}) != std::byte{0};
}

std::size_t encode_block(std::span<const std::uint32_t> indices, std::uint32_t first,
                         std::size_t span, std::byte* out) {
  const std::size_t count = indices.size();
  const unsigned form = count == 0 ? 0 : IndexBlock::best_form(count, span);
  const auto word = static_cast<std::uint32_t>(count) | form << 24;
  std::memcpy(out, &word, sizeof word);
  out += IndexBlock::header_bytes;
  const std::size_t bytes = IndexBlock::payload_bytes(count, span, form);
  std::memset(out, 0, bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t at = indices[i] - first;
    if (form == IndexBlock::bitmap) {
      set_bit(out, at);
      continue;
    }
    for (unsigned b = 0; b < form; ++b) {
      if ((at >> b & 1u) != 0) set_bit(out, i * form + b);
    }
    set_bit(out + IndexBlock::low_bytes(count, form), (at >> form) + i);
  }
  return IndexBlock::header_bytes + bytes;
}

bool decode_bitmap(const std::byte* coded, std::size_t count, std::size_t span, std::uint32_t first,
                   std::uint32_t* out) {
  std::size_t found = 0;
  for (std::size_t at = 0; at < 8 * IndexBlock::bitmap_bytes(span); ++at) {
    if (!bit_at(coded, at)) continue;
    if (at >= span || found == count) return false;
    out[found++] = first + static_cast<std::uint32_t>(at);
  }
  return found == count;
}

bool decode_elias_fano(const std::byte* coded, std::size_t count, std::size_t span, unsigned form,
                       std::uint32_t first, std::uint32_t* out) {
  const std::byte* high = coded + IndexBlock::low_bytes(count, form);
  std::size_t found = 0;
  std::size_t next = 0;  // the next index must be at least this
  for (std::size_t bit = 0; bit < 8 * IndexBlock::high_bytes(count, span, form); ++bit) {
    if (!bit_at(high, bit)) continue;
    if (found == count) return false;
    std::size_t at = (bit - found) << form;
    for (unsigned b = 0; b < form; ++b) {
      at |= static_cast<std::size_t>(bit_at(coded, found * form + b)) << b;
    }
    if (at < next || at >= span) return false;
    next = at + 1;
    out[found++] = first + static_cast<std::uint32_t>(at);
  }
  return found == count;
}

}  // namespace

void encode_indices(const EncodeIndicesKernel::Args& args) {
  std::size_t written = 0;
  std::size_t done = 0;
  for (std::size_t offset = 0; offset < args.span; offset += IndexBlock::elements) {
    const std::size_t span = std::min(IndexBlock::elements, args.span - offset);
    const auto first = static_cast<std::uint32_t>(args.first + offset);
    std::size_t end = done;
    while (end < args.count && args.indices[end] - first < span) ++end;
    written += encode_block({args.indices + done, end - done}, first, span, args.out + written);
    done = end;
  }
  *args.written = written;
}

void decode_indices(const DecodeIndicesKernel::Args& args) {
  *args.result = {};
  std::size_t read = 0;
  std::size_t found = 0;
  for (std::size_t offset = 0; offset < args.span; offset += IndexBlock::elements) {
    const std::size_t span = std::min(IndexBlock::elements, args.span - offset);
    const auto first = static_cast<std::uint32_t>(args.first + offset);
    if (args.bytes - read < IndexBlock::header_bytes) return;
    std::uint32_t word = 0;
    std::memcpy(&word, args.coded + read, sizeof word);
    read += IndexBlock::header_bytes;
    const std::size_t count = word & 0xffffffu;
    const unsigned form = word >> 24;
    if (count > span || count > args.capacity - found) return;
    if (form > IndexBlock::most_low_bits && form != IndexBlock::bitmap) return;
    const std::size_t bytes = IndexBlock::payload_bytes(count, span, form);
    if (bytes > args.bytes - read) return;
    std::uint32_t* out = args.indices + found;
    const std::byte* coded = args.coded + read;
    if (count > 0 &&
        !(form == IndexBlock::bitmap ? decode_bitmap(coded, count, span, first, out)
                                     : decode_elias_fano(coded, count, span, form, first, out))) {
      return;
    }
    read += bytes;
    found += count;
  }
  *args.result = {true, found, read};
}

}  // namespace pith::kernels::scalar
