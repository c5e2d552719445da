// The receiving half of the connection to one peer: puts pieces in order, holds them while the
// mailbox accepts no more from this peer, and makes messages of them. Calls UCX only through
// UcxData, so that tests can feed it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/mailbox.hpp"
#include "transport/ucx/ucx_slots.hpp"

namespace pith {

// Releases messages that UCX has left with us.
class UcxData {
 public:
  virtual void release_data(void* message) = 0;

 protected:
  ~UcxData() = default;
};

// A piece as it arrived.
struct UcxArrival {
  UcxHead head;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool may_keep = false;    // `data` can stay in place until it is released
  bool rendezvous = false;  // no data yet: `message` must be fetched
  void* message = nullptr;  // UCX's handle
};

class UcxInbox final : public SlotOwner, public MessageSource {
 public:
  UcxInbox(Mailbox& mailbox, UcxSlots& slots, UcxData& data, int peer)
      : mailbox_(mailbox), slots_(slots), data_(data), peer_(peer) {}
  UcxInbox(const UcxInbox&) = delete;
  UcxInbox& operator=(const UcxInbox&) = delete;

  // A piece that waits for its turn, its data, or the mailbox.
  struct Held {
    UcxInbox* inbox = nullptr;
    UcxHead head;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    void* message = nullptr;  // to be released or fetched
    UcxSlot* slot = nullptr;  // holds a copy, or the fetched data
    bool ready = false;
    bool fetching = false;
    bool dropped = false;
    Mailbox::Incoming* announced = nullptr;  // its entry in the mailbox
    Held* next = nullptr;
  };

  // Takes a sequenced message. `fault`: what is wrong, or null. `kept`: its data must stay valid.
  struct Outcome {
    const char* fault = nullptr;
    bool kept = false;
  };
  Outcome arrive(const UcxArrival& arrival);
  // Takes held pieces that can be taken now; true when anything moved.
  bool pump(const char*& fault);
  // The first piece whose data must be fetched into its slot; `message` is UCX's handle.
  Held* next_fetch(void*& message);
  static void fetched(Held& held, bool good);
  // The next announced message that the mailbox wants, to be fetched to announced->data; null:
  // none.
  Held* next_wanted(void*& message);
  static void landed(Held& held, bool good);

  bool can_pump() const { return held_ && is_next(*held_) && held_->ready && accepts(); }
  bool wants_fetch() const { return unfetched_ != 0 || !wanted_.empty(); }
  bool empty() const { return !held_ && !incoming_ && announced_.empty(); }
  // The peer's goodbye has been reached.
  bool left() const { return left_; }
  // Cost of what was taken since the last call.
  std::uint64_t take_cost() { return std::exchange(cost_, 0); }

  // Takes nothing more: receives that wait for a rest end with the error. Must precede the worker's
  // end, for UCX's buffers go back to it.
  void abandon(const Error& error);
  void release_slot(int peer, std::uint64_t held) override;
  void fetch(Mailbox::Incoming& incoming) override;
  void drop(std::uint64_t held) override;

 private:
  bool accepts() const { return mailbox_.accepts(peer_); }
  bool is_next(const Held& held) const { return held.head.sequence == next_; }
  Held& hold(const UcxArrival& arrival);
  void insert(Held& held);
  void let_go(Held& held);
  const char* take(Held& held, bool& lent);
  bool announce(Held& held);
  const char* take_piece(const UcxHead& head, const std::byte* data, std::size_t bytes);

  // A sequence number further ahead than a window can hold is garbage.
  static constexpr std::uint32_t ahead_max = 1u << 16;
  // Shorter messages are copied, because UCX's buffers are larger than they are.
  static constexpr std::size_t keep_bytes = 2048;

  Mailbox& mailbox_;
  UcxSlots& slots_;
  UcxData& data_;
  int peer_;
  std::uint32_t next_ = 0;
  std::uint64_t cost_ = 0;
  std::size_t unfetched_ = 0;
  bool left_ = false;
  Mailbox::Incoming* incoming_ = nullptr;
  Held* held_ = nullptr;  // by sequence
  std::vector<std::unique_ptr<Held>> all_;
  std::vector<Held*> spare_;
  std::vector<Held*> announced_;  // not delivered to the mailbox yet
  std::vector<Held*> wanted_;     // of these, requested by the mailbox
  Error why_;                     // set by abandon()
};

}  // namespace pith
