// The table entry of an algorithm: name, what it needs, what it costs, and its coroutine.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "collectives/call.hpp"

namespace pith {

// `split` is no algorithm, but a call like the others where ranks are compared.
enum class Collective : std::uint8_t { allreduce, broadcast, allgather, barrier, split };
std::string_view name_of(Collective collective);
// Whether the call has an operation, and whether it has a root.
constexpr bool reduces(Collective collective) { return collective == Collective::allreduce; }
constexpr bool has_root(Collective collective) { return collective == Collective::broadcast; }

// Sizes in which algorithms cut their work. Part of what all ranks agree on; tests shrink them so
// that small vectors walk the pipelined paths.
struct Tuning {
  std::size_t chunk_bytes = std::size_t{64} << 10;
  int lanes = 4;  // chunks of one strand's sequence in flight
};

// The arguments of a dense collective. `count`: elements of send (allgather: per rank).
struct CollectiveArgs {
  Collective collective = Collective::allreduce;
  Bytes send;
  Bytes recv;
  std::size_t count = 0;
  DType type = DType::f32;
  Op op = Op::sum;
  int root = 0;
  Tuning tuning;
};

// What the choice and the cost may depend on: all of it agreed between the ranks.
struct Shape {
  int ranks = 1;
  std::size_t bytes = 0;  // of the vector; allgather: contributed per rank
  Tuning tuning;
  bool views = false;  // every two ranks reach each other's memory, or at least may
};

// An ideal link and core: seconds per message, per byte sent, per byte reduced.
struct LinkCost {
  double alpha = 0;
  double beta = 0;
  double gamma = 0;
};

struct Algorithm {
  std::string_view name;
  Collective collective;
  Task<Error> (*run)(Call& call, CollectiveArgs args);
  // Seconds on ideal full-duplex links: exact where every block is one chunk, else an estimate.
  double (*cost)(const Shape& shape, const LinkCost& link);
  int ranks_max = std::numeric_limits<int>::max();
};

std::span<const Algorithm> algorithms();
// nullptr where there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
// The fixed rule by size and ranks; see its definition.
const Algorithm& default_algorithm(const Shape& shape, Collective collective);

// Runs every child; the call's frames keep them. A convenience over when_all for strands.
template <std::size_t n>
WhenAll when_all(std::array<Task<Error>, n>& strands) {
  return WhenAll(std::span<Task<Error>>(strands));
}

}  // namespace pith
