// The numbers of calls on the wire. A communicator counts its calls in 64 bits; on the wire a
// number has 31 bits and wraps from 2^31 - 1 to 1. Number 0 marks point-to-point messages. The top
// bit marks captured calls, and the two top bits captured calls whose numbers are used again.
#pragma once

#include <cstdint>

namespace pith {

inline constexpr std::uint32_t call_numbers = 0x7fffffffu;

// The number of the nth call, counting from 1; 0 if nth is 0.
constexpr std::uint32_t call_number(std::uint64_t nth) {
  return nth == 0 ? 0 : static_cast<std::uint32_t>((nth - 1) % call_numbers) + 1;
}

constexpr std::uint32_t next_number(std::uint32_t number) {
  return number == call_numbers ? 1 : number + 1;
}

// How many calls after `from` the call `to` is.
constexpr std::uint32_t calls_between(std::uint32_t from, std::uint32_t to) {
  return to >= from ? to - from : to + (call_numbers - from);
}

constexpr std::uint32_t number_after(std::uint32_t number, std::uint32_t calls) {
  return call_number(std::uint64_t{number} + calls);
}

// Captured calls have a number range of their own.
constexpr bool is_captured(std::uint32_t number) { return number > call_numbers; }

// Whether `number` came after `than`, provided that they are less than half the number range apart.
// Ignores the top bit.
constexpr bool is_later(std::uint32_t number, std::uint32_t than) {
  return static_cast<std::int32_t>((number - than) << 1) > 0;
}

// The same for the numbers of point-to-point messages.
constexpr bool is_later_message(std::uint32_t number, std::uint32_t than) {
  constexpr std::uint32_t captured = 1u << 31;
  constexpr std::uint32_t coming_again = 3u << 30;
  if (number < captured || than < captured) return is_later(number, than);
  if (number < coming_again || than < coming_again) return number > than;
  return static_cast<std::int32_t>((number - than) << 2) > 0;
}

}  // namespace pith
