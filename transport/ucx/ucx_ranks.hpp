// The implementation of UcxTransport: the seam in ucx.cpp, start and end in ucx_mesh.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/ucx/ucx.hpp"
#include "transport/ucx/ucx_inbox.hpp"
#include "transport/ucx/ucx_outbox.hpp"

namespace pith {

class UcxRanks final : public UcxTransport, private UcxData {
 public:
  UcxRanks(Scheduler& scheduler, Mailbox& mailbox, int rank, int ranks, const Secret& secret,
           const UcxOptions& options, std::unique_ptr<UcxWorker> worker);
  ~UcxRanks() override;

  Expected<std::string> listen() override;
  Error connect(std::span<const std::string> addresses, std::span<const std::uint8_t> use,
                const Patience& patience) override;
  void close(std::uint64_t deadline_ns) override;
  std::uint64_t unauthenticated() const override { return unauthenticated_; }

  std::string_view name() const override { return "ucx"; }
  bool start(Send& send) override;
  std::size_t direct_bytes(Compute& compute) const override;
  std::size_t slot_bytes() const override { return ucx_piece_max; }
  MemoryHandle expose(int, Bytes) override { return {}; }
  std::byte* map(int, MemoryHandle) override { return nullptr; }
  bool progress() override;
  bool busy() const override;
  int descriptor() const override { return worker_->descriptor(); }
  bool arm() override;
  void disarm() override {}
  void quiesce(const CommState& comm, const Error& error) override;
  std::uint64_t heard_from(int peer) const override {
    return by_rank_[static_cast<std::size_t>(peer)]->heard;
  }
  void for_each_sending(const std::function<void(const Send&)>& see) const override;

 private:
  struct Peer {
    Peer(UcxRanks& all, int number)
        : ranks(all),
          rank(number),
          inbox(all.mailbox_, all.slots_, all, number),
          outbox(all.wire_) {}

    UcxRanks& ranks;
    int rank;
    ucp_ep_h endpoint = nullptr;
    std::uint64_t token = 0;  // carried by its messages
    UcxInbox inbox;
    UcxOutbox outbox;
    Error error;                // set once the peer is lost
    bool live = true;           // false: lost, or has left in order
    bool said_goodbye = false;  // messages before that may still wait
    bool said_farewell = false;
    bool said_hello = false;
    bool is_ready = false;
    ucs_status_t broken = UCS_OK;
    std::uint64_t broken_ns = 0;  // since when, or since the last message after that
    std::uint64_t heard = 0;      // messages that have arrived
    std::string ended;            // how its connection has ended; set when what it sent is here
  };

  static ucs_status_t message_came(void* self, const void* head, std::size_t head_bytes, void* data,
                                   std::size_t bytes, const ucp_am_recv_param_t* param);
  static void endpoint_broke(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static void fetch_done(void* request, ucs_status_t status, std::size_t bytes, void* held);
  static void direct_done(void* request, ucs_status_t status, std::size_t bytes, void* held);
  void release_data(void* message) override { worker_->release(message); }

  Peer* sender_of(const UcxHead& head);
  ucs_status_t take(Peer& peer, const UcxArrival& arrival);
  void heed(Peer& peer, UcxKind kind);
  bool pump(Peer& peer);
  bool fetch(Peer& peer);
  bool fetch_wanted(Peer& peer);
  bool check_peer(Peer& peer);
  void leave_in_order(Peer& peer);
  bool is_missed(const Peer& peer) const;
  void end(Peer& peer);
  void lose(Peer& peer, std::string_view how);
  void let_go(Peer& peer);
  void report_lost();

  Error meet(const UcxAddress& theirs, int rank);
  Error await_greetings(const Patience& patience);
  Error silent(const Peer& suspect) const;
  void turn(std::uint64_t deadline_ns);
  void begin_flush();
  void flush(std::uint64_t deadline_ns);
  void await_farewells(std::uint64_t deadline_ns);

  Scheduler& scheduler_;
  Mailbox& mailbox_;
  const int rank_;
  const int ranks_;
  const Secret secret_;
  UcxSlots slots_;
  UcxWire wire_;
  bool direct_ = false;  // the network reaches devices' memory
  UcxNonce nonce_{};
  std::vector<std::unique_ptr<Peer>> by_rank_;
  std::vector<Peer*> peers_;  // connected or once connected
  std::vector<Peer*> unreported_;
  std::uint64_t unauthenticated_ = 0;
  bool no_memory_ = false;             // an allocation failed while UCX delivered a message
  int flushing_ = 0;                   // flushes that UCX has not finished
  std::unique_ptr<UcxWorker> worker_;  // ends first: it calls back into all the others
};

}  // namespace pith
