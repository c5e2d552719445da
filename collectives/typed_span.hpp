// Byte spans addressed by elements of the call's type, and kernels that run on them.
#pragma once

#include <algorithm>
#include <bit>
#include <span>

#include "collectives/algorithm.hpp"
#include "collectives/patterns.hpp"

namespace pith {

inline Bytes part(Bytes memory, DType type, Range range) {
  return memory.part(range.begin * size_of(type), range.size * size_of(type));
}

// Where the block for, or of, the caller's rank `rank` lies in a buffer that holds several.
inline Range send_block(const CollectiveArgs& args, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return args.uneven.send ? args.uneven.send[r] : Range{r * args.count, args.count};
}
inline Range recv_block(const CollectiveArgs& args, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return args.uneven.recv ? args.uneven.recv[r] : Range{r * args.count, args.count};
}
// Elements of the longest block; in an alltoall, of those that this rank sends or gets.
inline std::size_t longest_block(const CollectiveArgs& args) {
  return args.uneven.used() ? args.uneven.longest() : args.count;
}

// Elements of a chunk: at least one, whatever the tuning says.
inline std::size_t chunk_elements(const Tuning& tuning, DType type) {
  return std::max<std::size_t>(1, tuning.chunk_bytes / size_of(type));
}

// How many strands share the chunks of one sequence; 0 if there is no chunk.
inline constexpr std::size_t most_lanes = 8;
inline std::size_t lanes_for(const Tuning& tuning, std::size_t chunks) {
  return std::min({most_lanes, chunks, static_cast<std::size_t>(std::max(1, tuning.lanes))});
}

// How many of `messages`, which do not depend on each other, are in flight at once; the longest has
// `bytes` bytes. They keep `lanes` chunks on the way, however short they are.
inline constexpr std::size_t most_window = 32;
inline std::size_t window(const Tuning& tuning, std::size_t messages, std::size_t bytes) {
  const auto lanes = static_cast<std::size_t>(std::max(1, tuning.lanes));
  const std::size_t fitting = lanes * tuning.chunk_bytes / std::max<std::size_t>(1, bytes);
  return std::min({std::max(lanes, fitting), messages, most_window});
}

inline std::size_t elements_in(Bytes memory, DType type) {
  // Sizes are powers of two, and a division would take as long as a short reduction.
  return memory.size >> std::countr_zero(size_of(type));
}

// out = op(a, b), with operands in rank order.
inline Fence reduce(Call& call, const CollectiveArgs& args, Bytes out, const std::byte* a,
                    const std::byte* b) {
  return call.run<ReduceKernel>(
      {out.data, a, b, elements_in(out, args.type), args.type, args.op, false});
}

// The divisor of a finished sum; 0 if the operation does not divide.
inline float divisor_of(const Call& call, const CollectiveArgs& args) {
  if (args.op != Op::avg) return 0;
  return args.divisor != 0 ? args.divisor : static_cast<float>(call.size());
}

// Reduces one input of every rank, in rank order, and divides averages. All outputs get the result;
// an output may be an input, too.
inline Fence reduce_all_ranks(Call& call, const CollectiveArgs& args,
                              std::span<std::byte* const> outputs,
                              std::span<const std::byte* const> inputs, std::size_t count,
                              bool streaming = false) {
  // The arrays are longer than their content; the rest is not initialised.
  ReduceManyKernel::Args reduction;
  reduction.count = count;
  reduction.type = args.type;
  reduction.op = args.op;
  reduction.divisor = divisor_of(call, args);
  reduction.streaming = streaming;
  reduction.inputs = static_cast<std::uint32_t>(inputs.size());
  reduction.outputs = static_cast<std::uint32_t>(outputs.size());
  std::copy(inputs.begin(), inputs.end(), reduction.in.begin());
  std::copy(outputs.begin(), outputs.end(), reduction.out.begin());
  return call.run<ReduceManyKernel>(reduction);
}
inline Fence reduce_all_ranks(Call& call, const CollectiveArgs& args, Bytes out,
                              std::span<const std::byte* const> inputs) {
  return reduce_all_ranks(call, args, {&out.data, 1}, inputs, elements_in(out, args.type));
}

// Divides a finished sum if the operation is avg.
inline Fence finish(Call& call, const CollectiveArgs& args, Bytes data, Fence after) {
  const float divisor = divisor_of(call, args);
  if (divisor == 0 || data.size == 0) return after;
  return call.run<FinishAvgKernel>({data.data, elements_in(data, args.type), args.type, divisor},
                                   after);
}

inline Fence copy(Call& call, Bytes out, const std::byte* in) {
  if (out.data == in || out.size == 0) return {};
  return call.run<CopyKernel>({out.data, in, out.size});
}
inline Fence copy(Call& call, Bytes out, Bytes in) { return copy(call, out, in.data); }

// out = the result of a single operand: the same, or its truth value if the operation is logical.
inline Fence only_operand(Call& call, const CollectiveArgs& args, Bytes out, const std::byte* in) {
  if (!is_logical(args.op)) return copy(call, out, in);
  return call.run<ReduceKernel>(
      {out.data, in, in, elements_in(out, args.type), args.type, Op::lor, false});
}

}  // namespace pith
