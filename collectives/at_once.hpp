// What calls without a coroutine share, in which a message to a neighbour takes less time than a
// coroutine's frame, its awaiters and the mailbox.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"
#include "core/engine.hpp"
#include "core/waiting.hpp"

namespace pith {

// What rings carry in a cell or a short slot. Of longer messages the copies count.
inline constexpr std::size_t at_once_bytes = 4096;

// Reads the message with this header from where the transport has it, if it comes within the time
// that a neighbour's takes; ranks that share a core look once. Neither none nor taken: it goes
// through the mailbox.
inline Front take_front_at_once(const Call& call, int peer, const Header& header,
                                const FrontReader& reader, const Engine& engine) {
  constexpr int most_looks = 64;
  const auto& [transport, number] = call.route(peer);
  // Among what is stored may be the message itself.
  if (call.mailbox().flow().backlog_of(number) != 0) return Front::hidden;
  for (int look = engine.is_oversubscribed() ? most_looks : 0;; ++look) {
    const Front front = transport->take_front(number, header, reader);
    if (front != Front::none || look == most_looks) return front;
    relax();
  }
}

// Calls that end at once leave posted work and other sources alone; every so many of them a turn is
// theirs. `number`: the call's or the message's.
inline void turn_at_times(std::uint32_t number, Engine& engine) {
  constexpr std::uint32_t calls_a_turn = 64;
  if (number % calls_a_turn == 0) engine.progress_all();
}

}  // namespace pith
