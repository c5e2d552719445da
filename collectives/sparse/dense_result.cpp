#include "collectives/sparse/dense_result.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pith {

namespace {

// Writes the values of a range that are not zero, as float32 pairs.
void put_pairs(Call& call, ResultWriter& writer, Range range, const std::byte* sums, DType type) {
  const Scratch values(call.host_compute(), range.size * sizeof(float));
  const Scratch indices(call.host_compute(), range.size * sizeof(std::uint32_t));
  auto* kept = reinterpret_cast<float*>(values.bytes().data);
  auto* at = reinterpret_cast<std::uint32_t*>(indices.bytes().data);
  call.run<ConvertKernel>({values.bytes().data, DType::f32, sums, type, range.size, 1});
  std::size_t n = 0;
  for (std::size_t i = 0; i < range.size; ++i) {
    if (kept[i] == 0) continue;
    kept[n] = kept[i];
    at[n++] = static_cast<std::uint32_t>(range.begin + i);
  }
  writer.put(range, {at, values.bytes().data, n}, DType::f32);
}

}  // namespace

void put_all(Call& call, const CompressedTensor& tensor, ResultWriter& writer, Range range,
             const std::byte* sums, DType type) {
  constexpr std::size_t block = std::size_t{1} << 16;
  const float divisor = divisor_of(tensor, call.size());
  const std::size_t unit = size_of(type);
  if (!tensor.sparse.count) {
    std::byte* out = tensor.recv + range.begin * size_of(tensor.type);
    if (out == sums && divisor == 1) return;
    Compute& writer_of = tensor.device ? *tensor.device : call.compute();
    writer_of.run<ConvertKernel>({out, tensor.type, sums, type, range.size, divisor});
    return;
  }
  for (std::size_t done = 0; done < range.size; done += block) {
    const Range part{range.begin + done, std::min(block, range.size - done)};
    put_pairs(call, writer, part, sums + done * unit, type);
  }
}

void conclude_whole(const SparseCall& args, const CompressedTensor& tensor, ResultWriter& writer) {
  args.conclude(tensor, writer);
  tensor.compressor->stats.selected_union = tensor.count;
  tensor.compressor->take_all();
}

bool is_nan(const std::byte* sums, DType type) {
  if (type == DType::bf16) {
    std::uint16_t code = 0;
    std::memcpy(&code, sums, sizeof code);
    return (code & 0x7fffu) > 0x7f80u;
  }
  float value = 0;
  std::memcpy(&value, sums, sizeof value);
  return std::isnan(value);
}

void WholeResults::conclude_before(std::size_t end) {
  while (tensor_ < end) {
    args_.conclude(args_.tensors[tensor_], *writer_);
    ++tensor_;
    if (tensor_ < args_.tensors.size()) writer_.emplace(call_, args_.tensors[tensor_]);
  }
}

void WholeResults::finish() {
  conclude_before(args_.tensors.size());
  for (const CompressedTensor& tensor : args_.tensors) {
    tensor.compressor->stats.selected_union = tensor.count;
    tensor.compressor->take_all();
  }
}

}  // namespace pith
