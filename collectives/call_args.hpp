// The arguments of a call, which is of one of three kinds; those of a dense collective are
// CollectiveArgs.
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

// Point-to-point messages. They are no collective and have no number among the communicator's
// calls.
struct PairArgs {
  std::span<Message> messages;
  std::size_t chunk_bytes = 0;
};

// For code that treats all kinds alike.
using CallArgs = std::variant<CollectiveArgs, CompressedArgs, PairArgs>;

// Hash of what ranks must agree on; travels in every message. Point-to-point messages have digests
// of their own.
std::uint64_t digest_of(const CollectiveArgs& args);
// Of what ranks must agree on of uneven blocks.
std::uint64_t digest_of_blocks(const CollectiveArgs& args);
std::uint64_t digest_of(const CompressedArgs& args);
constexpr std::uint64_t digest_of(const PairArgs&) { return 0; }

}  // namespace pith
