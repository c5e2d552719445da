// The sum of values that all ranks hold for the same elements, in rank order and rounded once: the
// reduction of every scheme with common indices.
#pragma once

#include <span>

#include "collectives/compressed.hpp"

namespace pith {

// Values for consecutive elements of one tensor's list.
struct ValuePart {
  float* accumulator = nullptr;  // of the whole vector; null: rounding losses are dropped
  const std::uint32_t* indices = nullptr;
  std::size_t count = 0;
};

struct ValueSum {
  std::byte* values = nullptr;  // in: this rank's; out: the sums, the same bits on every rank
  std::size_t count = 0;
  DType type = DType::f32;  // f32, bf16 or f16, which clips
  // The owners of the values, in order, with `count` elements in all. The rank that sums a block
  // adds what rounding the sums lost to its own accumulator.
  std::span<const ValuePart> parts;
  std::uint16_t lane = 0;  // of the first half's messages; the second half uses the next one
  std::uint32_t step = 0;
  Fence ready;  // reached when this rank's values are written
  // Longer blocks go in several messages, whose length has 32 bits. Tests lower it.
  std::size_t most_message_bytes = message_bytes_max;
};

// Every rank sums one block of all ranks' values and sends the result to all others.
// Cost: 2 alpha + 2 (P-1)/P m beta, m bytes of values; all messages of a half are in flight at
// once.
Task<Error> sum_values(Call& call, ValueSum sum, Traffic& traffic);

}  // namespace pith
