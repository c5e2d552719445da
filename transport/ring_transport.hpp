// The common part of the transports over shared memory: sending through rings, receiving into the
// mailbox, sleeping. Derived classes find the memory and attach the peers.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "transport/peer_transport.hpp"
#include "transport/ring.hpp"

namespace pith {

class RingTransport : public PeerTransport, public SlotOwner {
 public:
  RingTransport(const RingTransport&) = delete;
  RingTransport& operator=(const RingTransport&) = delete;

  bool start(Send& send) override;
  std::size_t slot_bytes() const override { return shape_.large_bytes; }
  Front take_front(int peer, const Header& header, const FrontReader& reader) override;
  // Where the cores of the two share a cache, by what lines from one to the other have taken of
  // late, or slots are filled past the caches: two copies by the cores then take less than the
  // kernel's one. As long as the latter is not known, too, so that it will be.
  bool prefers_messages(int peer) override;
  bool progress() override;
  bool busy() const override {
    return mailbox_.waiting() != 0 || !sending_.empty() || arriving_ != 0;
  }
  bool arm() override;
  void disarm() override;
  void quiesce(const CommState& comm, const Error& error) override;
  std::uint64_t heard_from(int peer) const override;
  void for_each_sending(const std::function<void(const Send&)>& see) const override;
  void release_slot(int peer, std::uint64_t slot) override;

 protected:
  // Whether a receive from this rank waits.
  bool awaited(int rank) const { return mailbox_.awaited(rank); }
  RingTransport(Scheduler& scheduler, Mailbox& mailbox, int ranks, const RingShape& shape);
  ~RingTransport() override;

  // What the derived class has found of a peer.
  struct Link {
    std::byte* inbound = nullptr;
    std::byte* outbound = nullptr;
    RingSleep* peer_sleep = nullptr;
    int doorbell = -1;  // an eventfd of the peer; -1: ring() wakes it
  };
  void join(int peer, const Link& link);
  void part(int peer);
  bool joined(int peer) const { return peers_[static_cast<std::size_t>(peer)] != nullptr; }
  // Ends pending and later sends to the peer with this error.
  void end_sends(int peer, const Error& error);
  // Takes all that the mailbox accepts from one peer.
  bool drain(int peer);

  void set_own_sleep(RingSleep* sleep, int doorbell) {
    own_sleep_ = sleep;
    own_doorbell_ = doorbell;
  }
  // Wakes a peer that has no doorbell.
  virtual void ring(int) {}
  // Called once in many idle progress calls and after sleeping, to detect peers that are gone.
  virtual bool check_peers() { return false; }

  const RingShape shape_;

 private:
  struct Peer;

  bool take(Peer& peer);
  void take_whole(Peer& peer, const RingMessage& message);
  void take_piece(Peer& peer, const RingMessage& message);
  bool advance(Peer& peer, const Header& header);
  bool pump(Peer& peer);
  void finish_front(Peer& peer, const Error& error);
  void wake(Peer& peer, std::uint32_t reasons);

  Scheduler& scheduler_;
  Mailbox& mailbox_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: not attached
  std::vector<Peer*> attached_;
  std::vector<Peer*> sending_;
  std::size_t arriving_ = 0;  // messages that have arrived in part
  std::uint32_t idle_ = 0;
  RingSleep* own_sleep_ = nullptr;
  int own_doorbell_ = -1;
};

}  // namespace pith
