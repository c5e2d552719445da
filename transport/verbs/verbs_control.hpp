// The control connection of a pair: frames in order, each into a slot that the receiver has posted.
//
// A sender knows how many slots are free, because every frame tells how many have been taken. Of
// `window` slots messages leave some for words, the frames of the transport's own, so that these
// get through where messages wait. Credits have slots besides the window: both ends can always tell
// what they have taken, whatever waits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/verbs/verbs_slots.hpp"
#include "transport/verbs/verbs_tag.hpp"

namespace pith {

class VerbsControl {
 public:
  VerbsControl(VerbsSlots& slots, int peer) : slots_(slots), peer_(peer) {}
  ~VerbsControl() { close(); }
  VerbsControl(const VerbsControl&) = delete;
  VerbsControl& operator=(const VerbsControl&) = delete;

  // Completions that a connection with this window can have at once.
  static std::size_t completions(std::uint32_t window);

  Error make(const VerbsRail& rail, std::uint32_t window);
  const VerbsEnd& end() const { return pair_.end(); }
  Error meet(const VerbsPlace& place, const VerbsEnd& theirs, std::uint32_t their_window);
  // Posts receives, and may send from now on.
  Error open();
  // Destroys the connection; slots with the mailbox come back later.
  void close();
  bool is_open() const { return open_; }
  // What has gone wrong at the device; 0: nothing.
  int broken() const { return broken_; }

  bool has_room() const {
    return open_ && room() > words_reserve(their_window_) && has_queue_room();
  }
  // A frame with payload; there must be room.
  void send(const VerbsHead& head, std::span<const std::byte> payload);
  // A word goes at once, or waits until there is room.
  void say(const VerbsHead& head, std::span<const std::byte> payload = {});
  // Grants of places for data connections that have stopped are not said any more.
  void forget_grants();
  // Says what waits; true if anything went.
  bool pump();
  bool can_pump() const;
  bool empty() const { return words_.empty(); }
  // A goodbye or farewell has been said, and acknowledged by the peer's device.
  bool last_sent() const {
    return empty() && last_ != 0 && static_cast<std::int32_t>(completed_ - last_) >= 0;
  }

  // A completion of a frame sent.
  void sent(std::uint32_t number);
  // A completion of a receive: the frame that came.
  VerbsSlot& came(std::uint32_t slot, std::uint32_t bytes);
  VerbsSlot& slot(std::uint32_t slot) { return *received_[slot]; }
  // The frame in it has been taken; the slot is for the next one.
  void take_back(std::uint32_t slot);
  void credited(std::uint32_t taken);
  // Whether the mailbox may keep a frame in its slot. What is left goes round: it is more than
  // words take and the peer may not have been told of.
  bool can_lend() const { return lent_ < window_ / 2; }
  void lend() { ++lent_; }
  void unlend() { --lent_; }

  // Sends nothing to the peer's memory; its device answers, or the connection breaks.
  void probe();

 private:
  static std::uint32_t words_reserve(std::uint32_t window) {
    return std::min(window / 4, std::uint32_t{4});
  }
  static constexpr std::uint32_t credits_reserve = 8;

  struct Word {
    VerbsHead head;
    std::size_t bytes = 0;
    std::byte payload[sizeof(VerbsRestart)];
  };

  std::uint32_t room() const { return their_window_ - (spent_ - credited_); }
  bool has_queue_room() const { return posted_ - completed_ < flight_.size(); }
  void post_frame(VerbsHead head, std::span<const std::byte> payload);
  void post(ibv_send_wr& work, VerbsSlot* slot);
  void post_receive(std::uint32_t slot);
  void settle_credit();

  VerbsSlots& slots_;
  const int peer_;
  VerbsQueuePair pair_;
  bool open_ = false;
  int broken_ = 0;
  std::uint32_t inlined_ = 0;
  std::uint32_t window_ = 0;
  std::uint32_t their_window_ = 0;
  std::uint32_t spent_ = 0;     // counted frames sent
  std::uint32_t credited_ = 0;  // of these, what the peer has taken
  std::uint32_t taken_ = 0;     // counted frames taken from the peer
  std::uint32_t told_ = 0;      // of these, what it has been told
  std::uint32_t posted_ = 0;    // work requests
  std::uint32_t completed_ = 0;
  std::uint32_t unsignalled_ = 0;
  std::size_t lent_ = 0;
  // Numbers of the last probe and of the last frame before the end, plus one; 0: there was none.
  std::uint32_t probe_ = 0;
  std::uint32_t last_ = 0;
  std::vector<VerbsSlot*> flight_;    // by number modulo its size; null: inlined
  std::vector<VerbsSlot*> received_;  // by slot number
  std::vector<Word> words_;
};

}  // namespace pith
