// Moves of coded values by ranks in virtual time: the cases and the memory of each rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "collectives/coded/coded_move.hpp"
#include "kernels/cast.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

using Memory = std::vector<std::byte>;

struct CodedCase {
  Collective collective = Collective::allgather;
  std::string spec = "int8";
  int ranks = 3;
  std::size_t count = 1000;
  DType type = DType::f32;
  Op op = Op::sum;
  int root = 0;
  bool in_place = false;
  Tuning tuning{512, 2};  // several parcels, of several chunks
  SimConfig sim = {};
  std::uint64_t order = 0;
};

inline std::string describe(const CodedCase& c) {
  return fmt::format("{} of {} {} by {}, {} ranks, {}, root {}, {}, order {}",
                     name_of(c.collective), c.count, name_of(c.type), c.spec, c.ranks,
                     name_of(c.op), c.root, c.in_place ? "in place" : "apart", c.order);
}

inline WireCoding wire_of(const CodedCase& c) { return *WireCoding::of(*Spec::parse(c.spec)); }

// Of many magnitudes, so that blocks of the coding differ.
inline float sent_value(int rank, std::size_t i) {
  const std::uint64_t bits = random_bits(7, static_cast<std::uint64_t>(rank), i);
  const float scale = 1.0F / static_cast<float>(1 << ((i / 700) % 9));
  return scale * (static_cast<float>(bits >> 40) / float(1 << 23) - 1);
}

// A part of what a rank sends.
inline Memory input_of(const CodedCase& c, int rank, std::size_t begin, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = sent_value(rank, begin + i);
  Memory input(count * size_of(c.type));
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  kernels::cast(input.data(), c.type, from, DType::f32, count);
  return input;
}
inline Memory input_of(const CodedCase& c, int rank) {
  return input_of(c, rank, 0, c.count * extent_of(c.collective, c.ranks).send);
}

// One rank's buffers; in place one of them is the own block of the other.
struct CodedBuffers {
  CodedBuffers(const CodedCase& c, int rank) {
    const std::size_t block = c.count * size_of(c.type);
    const Extent extent = extent_of(c.collective, c.ranks);
    const std::size_t own = static_cast<std::size_t>(rank) * block;
    send.resize(block * extent.send);
    recv.resize(block * extent.recv);
    args.send = {send.data(), send.size()};
    args.recv = {recv.data(), recv.size()};
    if (c.in_place && c.collective == Collective::broadcast) args.send = args.recv;
    if (c.in_place && c.collective == Collective::allgather) args.send = args.recv.part(own, block);
    if (c.in_place && c.collective == Collective::reduce_scatter) {
      args.recv = args.send.part(own, block);
    }
    const bool sends = c.collective != Collective::broadcast || rank == c.root;
    if (sends) std::ranges::copy(input_of(c, rank), args.send.data);
    args.collective = c.collective;
    args.count = c.count;
    args.type = c.type;
    args.op = c.op;
    args.root = c.root;
    args.tuning = c.tuning;
    args.wire = wire_of(c);
  }
  Memory result() const { return {args.recv.data, args.recv.data + args.recv.size}; }

  Memory send;
  Memory recv;
  CollectiveArgs args;
};

// One call of all ranks.
class CodedProgram {
 public:
  explicit CodedProgram(const CodedCase& c) {
    for (int rank = 0; rank < c.ranks; ++rank) buffers_.emplace_back(c, rank);
  }

  Task<Error> start(Call& call, int rank) {
    number_ = call.number();
    CollectiveArgs args = buffers(rank).args;
    args.root = call.place_of(args.root);
    return run_coded(call, args);
  }
  const CodedBuffers& buffers(int rank) const { return buffers_[static_cast<std::size_t>(rank)]; }
  // On which the codes depend.
  std::uint32_t number() const { return number_; }

 private:
  std::vector<CodedBuffers> buffers_;
  std::uint32_t number_ = 0;
};

}  // namespace pith::test
