// The sending half of the connection to one peer: cuts messages into pieces, copies them into slots
// of ours and passes these to UCX, as far as the peer's window allows.
//
// The window is the flow control, for UCX takes whatever comes: at most `window_bytes` are in
// flight or untaken at the peer, which reports with every message how much it has taken.
//
// A send has ended when UCX has passed on all its pieces, so that they need no progress of this
// process. Nor does it need the peer's: UCX's flush is not used, as over sockets the peer must
// answer it.
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

// Shared by all outboxes of a transport.
struct UcxWire {
  UcxWorker* worker = nullptr;
  Scheduler* scheduler = nullptr;
  UcxSlots* slots = nullptr;
  std::uint32_t from = 0;
  std::uint64_t window_bytes = 0;
  std::size_t rendezvous_bytes = 0;
};

// A message that is not finished.
struct UcxOutgoing {
  Send* send = nullptr;  // null: it has ended, and the rest is in `copy`
  Header header;
  const std::byte* data = nullptr;
  std::size_t posted = 0;  // bytes given to UCX
  bool begun = false;
  int pending = 0;  // pieces that UCX has not finished
  std::unique_ptr<std::byte[]> copy;
  bool direct = false;             // sent whole, from where it lies
  std::shared_ptr<void> withheld;  // keeps its memory once `send` has ended

  bool all_posted() const { return begun && posted == header.length; }
};

class UcxOutbox {
 public:
  explicit UcxOutbox(const UcxWire& wire) : wire_(wire) {}

  void open(ucp_ep_h endpoint, std::uint64_t token);
  // Ends everything; sends that are waited for get the error.
  void fail(const Error& error);

  // The peer has left in order: it took what UCX still has, or did not need it.
  void peer_left();

  // True: complete at once.
  bool start(Send& send);
  // Posts what there is room for; true when anything moved.
  bool pump();
  // `taken`: the total cost that the peer has taken from us.
  void credited(std::uint64_t taken);
  // `cost`: what we have newly taken from the peer.
  void took(std::uint64_t cost);

  // Sends a message of the transport's own, outside the window.
  void say(UcxKind kind);

  // Ends sends of the communicator with the error; begun messages are completed from a copy.
  void quiesce(const CommState& comm, const Error& error);

  // Sends that are waited for, in order.
  void for_each_sending(const std::function<void(const Send&)>& see) const;

  bool empty() const { return queue_.empty() && posted_.empty(); }
  bool can_post() const { return !queue_.empty() && has_room(*queue_.front()); }
  bool awaited() const;
  // Messages of the transport's own that UCX still has.
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
  std::uint64_t credited_ = 0;  // cost that the peer has taken
  std::uint64_t taken_ = 0;     // cost that we have taken from it
  std::uint64_t told_ = 0;      // of that, what it has been told
  int saying_ = 0;
  std::vector<UcxOutgoing*> queue_;   // in order; the first one may have begun
  std::vector<UcxOutgoing*> posted_;  // wholly given to UCX, not finished
  std::vector<std::unique_ptr<UcxOutgoing>> all_;
  std::vector<UcxOutgoing*> spare_;
  UcxOutgoing* starting_ = nullptr;
  bool started_done_ = false;
};

}  // namespace pith
