// The arguments of a call, of one of three kinds. Those of a dense collective are CollectiveArgs.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "collectives/algorithm.hpp"
#include "collectives/compressed.hpp"
#include "collectives/point_to_point.hpp"

namespace pith {

// A compressed allreduce of several tensors.
struct CompressedArgs {
  std::span<CompressedTensor> tensors;
  Tuning tuning = {};
};

// Messages of pairs: no collective, with no number among the communicator's calls.
struct PairArgs {
  std::span<Message> messages;
  std::size_t chunk_bytes = 0;
};

// Where it does not matter which.
using CallArgs = std::variant<CollectiveArgs, CompressedArgs, PairArgs>;

// What ranks must agree on; travels in every message. Those of a pair have digests of their own.
std::uint64_t digest_of(const CollectiveArgs& args);
std::uint64_t digest_of(const CompressedArgs& args);
constexpr std::uint64_t digest_of(const PairArgs&) { return 0; }

}  // namespace pith
