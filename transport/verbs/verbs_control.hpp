// The control connection of a pair: frames in order, each into a slot that the receiver has posted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/verbs/verbs_credits.hpp"
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
  // Destroys the connection. Slots of frames that came remain: see forget_frames().
  void close();
  // After close(), where no frame is being looked at: gives up the memory of frames that came, once
  // the mailbox has returned what it was lent.
  void forget_frames() {
    if (!open_ && credits_.lent() == 0) received_.reset();
  }
  bool is_open() const { return open_; }
  // What has gone wrong, as an errno: the device refuses work, or there was no memory; 0: nothing.
  int broken() const { return broken_; }

  // In words, of a completion that failed.
  const char* status(ibv_wc_status status) const { return pair_.status(status); }

  bool has_room() const { return open_ && credits_.room_for_message() && has_queue_room(); }
  // A frame with payload; there must be room.
  void send(const VerbsHead& head, std::span<const std::byte> payload);
  // A word goes at once, or waits until there is room. Throws nothing: see broken().
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
  // Where a frame has come.
  VerbsSlot& slot(std::uint32_t slot) { return (*received_)[slot]; }
  // The frame in it has been taken; the slot is for the next one.
  void take_back(std::uint32_t slot);
  VerbsCredits& credits() { return credits_; }

  // Sends nothing to the peer's memory; its device answers, or the connection breaks.
  void probe();

 private:
  struct Word {
    VerbsHead head;
    std::size_t bytes = 0;
    std::byte payload[sizeof(VerbsRestart)];
  };

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
  VerbsCredits credits_;
  std::uint32_t posted_ = 0;  // work requests
  std::uint32_t completed_ = 0;
  std::uint32_t unsignalled_ = 0;
  // Numbers of the last probe and of the last frame before the end, plus one; 0: there was none.
  std::uint32_t probe_ = 0;
  std::uint32_t last_ = 0;
  std::vector<VerbsSlot*> flight_;  // by number modulo its size, a power of two; null: inlined
  std::unique_ptr<VerbsBlock> received_;
  std::vector<Word> words_;
};

}  // namespace pith
