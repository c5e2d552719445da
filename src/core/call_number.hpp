// Calls of a communicator are counted in 64 bits and numbered on the wire in 31: 1 to 2^31 - 1, and
// again from 1. Number 0 belongs to messages of pairs, the top bit to captured calls, the two top
// bits to those whose numbers come again.
#pragma once

#include <cstdint>

namespace pith {

inline constexpr std::uint32_t call_numbers = 0x7fffffffu;

// Of the nth call, counting from 1; 0 for none.
constexpr std::uint32_t call_number(std::uint64_t nth) {
  return nth == 0 ? 0 : static_cast<std::uint32_t>((nth - 1) % call_numbers) + 1;
}

constexpr std::uint32_t next_number(std::uint32_t number) {
  return number == call_numbers ? 1 : number + 1;
}

// Of graphs: they are numbered apart.
constexpr bool is_captured(std::uint32_t number) { return number > call_numbers; }

// Whether the call of one number came after that of another, as far as they are not half of all
// numbers apart. Without a look at the top bit.
constexpr bool is_later(std::uint32_t number, std::uint32_t than) {
  return static_cast<std::int32_t>((number - than) << 1) > 0;
}

// The same of messages of a pair.
constexpr bool is_later_message(std::uint32_t number, std::uint32_t than) {
  constexpr std::uint32_t captured = 1u << 31;
  constexpr std::uint32_t coming_again = 3u << 30;
  if (number < captured || than < captured) return is_later(number, than);
  if (number < coming_again || than < coming_again) return number > than;
  return static_cast<std::int32_t>((number - than) << 2) > 0;
}

}  // namespace pith
