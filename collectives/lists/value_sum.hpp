// The sum of values that all ranks hold for the same elements, in rank order and rounded once: the
// reduction behind every scheme with common indices.
#pragma once

#include <span>

#include "collectives/compressed.hpp"

namespace pith {

// Values for consecutive elements of one tensor's list.
struct ValuePart {
  float* accumulator = nullptr;  // of the whole vector; null: what rounding loses is lost
  const std::uint32_t* indices = nullptr;
  std::size_t count = 0;
};

struct ValueSum {
  std::byte* values = nullptr;  // in: this rank's; out: the sums, the same bits on every rank
  std::size_t count = 0;
  DType type = DType::f32;  // f32, bf16 or f16, which clips
  // Whose they are, in order, `count` in all: the rank that sums a segment keeps in its accumulator
  // what the rounding of the sum lost.
  std::span<const ValuePart> parts;
  std::uint16_t lane = 0;  // names the messages, with the lane behind it
  std::uint32_t step = 0;
  Fence ready;  // of this rank's values
  // A message's length has 32 bits: what is longer goes as several. Tests shrink it.
  std::size_t most_message_bytes = message_bytes_max;
};

// Every rank sums one segment of all ranks' values and sends the result to all. Cost:
// 2 alpha + 2 (P-1)/P m beta, m bytes of values; all messages of a half are under way at once.
Task<Error> sum_values(Call& call, ValueSum sum, Traffic& traffic);

}  // namespace pith
