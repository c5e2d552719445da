// The sending half of the way to one peer: cuts messages into pieces, copies them into slots of
// ours and hands these to UCX, as far as the peer's window allows.
//
// The window is the flow control: UCX takes whatever comes, so at most `window_bytes` are on their
// way or lie untaken at the peer, which tells with every message how much it has taken.
//
// A send has ended when UCX has passed on all its pieces: then they need nobody's progress here.
// And it needs nobody's there: UCX's flush is not asked, for over sockets the peer must answer it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/scheduler.hpp"
#include "transport/ucx/ucx_slots.hpp"
#include "transport/ucx/ucx_worker.hpp"

namespace pith {

// What all outboxes of a transport share.
struct UcxWire {
  UcxWorker* worker = nullptr;
  Scheduler* scheduler = nullptr;
  UcxSlots* slots = nullptr;
  std::uint32_t from = 0;
  std::uint64_t window_bytes = 0;
  std::size_t rendezvous_bytes = 0;
};

// A message of which something is left to do.
struct UcxOutgoing {
  Send* send = nullptr;  // null: it has ended, and the rest lies in `copy`
  Header header;
  const std::byte* data = nullptr;
  std::size_t posted = 0;  // bytes given to UCX
  bool begun = false;
  int pending = 0;  // pieces that UCX has not finished
  std::unique_ptr<std::byte[]> copy;
  bool direct = false;             // sent whole, from where it lies
  std::shared_ptr<void> withheld;  // what it is sent from, once `send` has ended

  bool all_posted() const { return begun && posted == header.length; }
};

class UcxOutbox {
 public:
  explicit UcxOutbox(const UcxWire& wire) : wire_(wire) {}

  void open(ucp_ep_h endpoint, std::uint64_t token);
  // Everything ends: sends that somebody waits for with the error.
  void fail(const Error& error);

  // The peer has left in order. What UCX has, it took or did not need: nobody waits for that.
  void peer_left();

  // True: complete at once.
  bool start(Send& send);
  // Posts what there is room for; true when anything moved.
  bool pump();
  // The peer has taken so much from us since the beginning.
  void credited(std::uint64_t taken);
  // We have taken so much from the peer.
  void took(std::uint64_t cost);

  // A message of the transport's own, beside the window.
  void say(UcxKind kind);

  // Sends of the communicator end with the error; what has begun goes on from a copy.
  void quiesce(const CommState& comm, const Error& error);

  // Sends that somebody waits for, in order.
  void for_each_sending(const std::function<void(const Send&)>& see) const;

  bool empty() const { return queue_.empty() && posted_.empty(); }
  bool can_post() const { return !queue_.empty() && has_room(*queue_.front()); }
  bool awaited() const;
  // Messages of our own that UCX still has.
  bool saying() const { return saying_ != 0; }

 private:
  static void slot_sent(void* request, ucs_status_t status, void* slot);

  bool has_room(const UcxOutgoing& outgoing) const;
  std::size_t next_bytes(const UcxOutgoing& outgoing) const;
  void post_next(UcxOutgoing& outgoing);
  void post_piece(UcxOutgoing& outgoing, UcxSlot& slot, std::size_t bytes);
  void post_direct(UcxOutgoing& outgoing, UcxSlot& slot);
  bool post(UcxSlot& slot, UcxWorker::Way way);
  bool is_done(UcxSlot& slot, ucs_status_ptr_t request);
  void end(UcxOutgoing& outgoing, const Error& error);
  void piece_done(UcxOutgoing& outgoing);
  void finish(UcxOutgoing& outgoing);
  UcxHead head_of(UcxKind kind);
  UcxOutgoing& take_outgoing(Send& send);

  const UcxWire& wire_;
  ucp_ep_h endpoint_ = nullptr;
  std::uint64_t token_ = 0;
  std::uint32_t sequence_ = 0;
  std::uint64_t spent_ = 0;     // cost of what was posted
  std::uint64_t credited_ = 0;  // of what the peer has taken
  std::uint64_t taken_ = 0;     // cost of what we have taken from it
  std::uint64_t told_ = 0;      // of that, what it knows
  int saying_ = 0;
  std::vector<UcxOutgoing*> queue_;   // in order; the first one may have begun
  std::vector<UcxOutgoing*> posted_;  // wholly given to UCX, which has not finished
  std::vector<std::unique_ptr<UcxOutgoing>> all_;
  std::vector<UcxOutgoing*> spare_;
  UcxOutgoing* starting_ = nullptr;
  bool started_done_ = false;
};

}  // namespace pith
