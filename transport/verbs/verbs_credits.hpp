// Who may send how many frames: a sender knows how many slots are free, because every frame tells
// how many have been taken. Of the window messages leave some slots for words, the frames of the
// transport's own, so that these get through where messages wait: so many that the peer owes a
// credit by the time all have been used. Credits have slots besides the window: both ends can
// always tell what they have taken, whatever waits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pith {

class VerbsCredits {
 public:
  // Slots for credits; more than can be on their way, as each answers a quarter of a window.
  static constexpr std::uint32_t besides = 8;

  // Frames that may be on their way to this rank; to the peer.
  std::uint32_t ours = 0;
  std::uint32_t theirs = 0;

  bool room_for_message() const { return room() > theirs / untold; }
  bool room_for_word() const { return room() != 0; }
  void spend() { ++spent_; }
  // What the peer says it has taken, modulo 2^32.
  void credited(std::uint32_t taken) {
    const auto ahead = static_cast<std::int32_t>(taken - credited_);
    const auto beyond = static_cast<std::int32_t>(taken - spent_);
    if (ahead > 0 && beyond <= 0) credited_ = taken;
  }

  // A frame of the peer has been taken.
  void take() { ++taken_; }
  // What it is told with each frame.
  std::uint32_t tell() { return told_ = taken_; }
  // Early enough that the peer does not stall, seldom enough to cost nothing.
  bool owes() const { return taken_ - told_ >= std::max(ours / untold, std::uint32_t{1}); }

  // Whether the mailbox may keep a frame in its slot. What is left goes round: it is more than
  // words take and the peer may not have been told of.
  bool can_lend() const { return lent_ < ours / 2; }
  void lend() { ++lent_; }
  void unlend() { --lent_; }
  std::size_t lent() const { return lent_; }

 private:
  static constexpr std::uint32_t untold = 4;  // a window's part that the peer may not be told of

  std::uint32_t room() const { return theirs - (spent_ - credited_); }

  std::uint32_t spent_ = 0;     // frames sent
  std::uint32_t credited_ = 0;  // of these, what the peer has taken
  std::uint32_t taken_ = 0;     // frames taken from the peer
  std::uint32_t told_ = 0;      // of these, what it has been told
  std::size_t lent_ = 0;
};

}  // namespace pith
