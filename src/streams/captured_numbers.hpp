// The numbers of captured calls. They are the same on all ranks without communication: the nth
// capture of a sequence takes the same place on each rank, and the replays of all calls at one
// place share one counter.
//
//   1 | place: 17 bits | replay: 14 bits
//
// A new call reuses a place only after the graphs of the older call are gone on this rank. No rank
// needs to know more: each has replayed the older call equally often by then, so all continue from
// the same replay. A slower rank takes messages of the new call for those of a later replay, and no
// late message has a number of the new call. Ranks that replayed a call unequally often are out of
// step in the next one, as after eager calls that only some of them made.
//
// The order of places is fixed: ranks see graphs go at different times and could not agree on which
// places to skip. Calls that a program keeps for its whole life are mostly captured first, so the
// first half of the places is used once and only the second half again and again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/point_to_point.hpp"
#include "core/call_number.hpp"

namespace pith {

// One sequence of captures.
class CapturedNumbers {
 public:
  static constexpr unsigned replay_bits = 14;
  static constexpr std::uint32_t replays = 1u << replay_bits;
  // The most calls that graphs hold at a time.
  static constexpr std::uint32_t most = (call_numbers + 1) / replays;

  // `places`: must be even.
  explicit CapturedNumbers(std::uint32_t places = most) : half_(places / 2) {}

  // Whether the nth capture from now, counted from 1, finds its place free, if those before it do.
  bool has_room(std::uint32_t nth = 1) const {
    if (nth > half_) return false;
    const std::uint32_t place = place_of(taken_ + nth - 1);
    return place >= places_.size() || !places_[place].held;
  }

  // Returns the number of the call's first replay. Precondition: has_room().
  std::uint32_t take() {
    const std::uint32_t place = place_of(taken_++);
    if (place == places_.size()) places_.emplace_back();
    places_[place].held = true;
    return (call_numbers + 1) | place << replay_bits | places_[place].replay;
  }

  // The call's graphs are gone. `next`: the number of the replay that would have come next.
  void give_back(std::uint32_t next) {
    const auto replay = static_cast<std::uint16_t>(next & (replays - 1));
    places_[(next & call_numbers) >> replay_bits] = {replay, false};
  }

  static constexpr std::uint32_t next_replay(std::uint32_t number) {
    return (number & ~(replays - 1)) | ((number + 1) & (replays - 1));
  }

 private:
  struct Place {
    std::uint16_t replay = 0;  // number of the next replay
    bool held = false;
  };
  std::uint32_t place_of(std::uint64_t nth) const {
    if (nth < half_) return static_cast<std::uint32_t>(nth);
    return half_ + static_cast<std::uint32_t>((nth - half_) % half_);
  }

  std::uint32_t half_;
  std::uint64_t taken_ = 0;
  std::vector<Place> places_;  // that have been used so far
};

// One sequence per peer and direction: a rank need not know what other ranks send each other.
class CapturedPairs {
 public:
  explicit CapturedPairs(std::size_t ranks, std::uint32_t places = CapturedNumbers::most)
      : sequences_(2 * ranks, CapturedNumbers(places)), wanted_(2 * ranks) {}

  bool has_room(std::span<const Message> messages) {
    bool all = true;
    for (const Message& message : messages) {
      const std::size_t index = index_of(message);
      all &= sequences_[index].has_room(++wanted_[index]);
    }
    for (const Message& message : messages) wanted_[index_of(message)] = 0;
    return all;
  }

  void take(std::span<Message> messages) {
    for (Message& message : messages) message.number = sequences_[index_of(message)].take();
  }

  void give_back(std::span<const Message> messages) {
    for (const Message& message : messages) {
      sequences_[index_of(message)].give_back(message.number);
    }
  }

 private:
  static std::size_t index_of(const Message& message) {
    return 2 * static_cast<std::size_t>(message.peer) + (message.sends ? 1 : 0);
  }

  std::vector<CapturedNumbers> sequences_;
  std::vector<std::uint32_t> wanted_;  // all zero outside of has_room()
};

}  // namespace pith
