// The receiving half of the way to one peer: puts pieces in order, keeps them while the mailbox
// takes no more from this peer, and makes messages of them. Calls UCX only through UcxData, so that
// tests can feed it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/mailbox.hpp"
#include "transport/ucx/ucx_slots.hpp"

namespace pith {

// Who owns the bytes of a message that UCX has left with us.
class UcxData {
 public:
  virtual void release_data(void* message) = 0;

 protected:
  ~UcxData() = default;
};

// A piece as it came.
struct UcxArrival {
  UcxHead head;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool may_keep = false;    // `data` can stay where it is, until it is released
  bool rendezvous = false;  // there is no data yet: `message` is to be fetched
  void* message = nullptr;  // UCX's name for it
};

class UcxInbox final : public SlotOwner, public MessageSource {
 public:
  UcxInbox(Mailbox& mailbox, UcxSlots& slots, UcxData& data, int peer)
      : mailbox_(mailbox), slots_(slots), data_(data), peer_(peer) {}
  UcxInbox(const UcxInbox&) = delete;
  UcxInbox& operator=(const UcxInbox&) = delete;

  // A piece that waits: for its turn, its contents, or the mailbox.
  struct Held {
    UcxInbox* inbox = nullptr;
    UcxHead head;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    void* message = nullptr;  // to be released or fetched
    UcxSlot* slot = nullptr;  // holds a copy, or what is being fetched
    bool ready = false;
    bool fetching = false;
    bool dropped = false;
    Mailbox::Incoming* announced = nullptr;  // as the mailbox knows it
    Held* next = nullptr;
  };

  // Takes a sequenced message. `kept`: its data must stay; null `fault` is good.
  struct Outcome {
    const char* fault = nullptr;
    bool kept = false;
  };
  Outcome arrive(const UcxArrival& arrival);
  // Takes what waits and may be taken now; true when anything moved.
  bool pump(const char*& fault);
  // The first piece whose contents are to be fetched into its slot; `message` names them.
  Held* next_fetch(void*& message);
  static void fetched(Held& held, bool good);
  // The next that the mailbox wants of what was announced, to be fetched to announced->data. Null:
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

  // Nothing more will be taken: the receive that waits for a rest ends with the error. Before the
  // worker goes, for UCX's buffers go back to it.
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

  // More than a window can hold is garbage.
  static constexpr std::uint32_t ahead_max = 1u << 16;
  // Shorter messages are copied: UCX's buffers are larger than they.
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
  std::vector<Held*> announced_;  // which the mailbox has not got yet
  std::vector<Held*> wanted_;     // of these
  Error why_;                     // nothing more will be taken
};

}  // namespace pith
