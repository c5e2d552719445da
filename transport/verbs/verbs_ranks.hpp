// The implementation of VerbsTransport: the seam in verbs.cpp, start and end in verbs_mesh.cpp, the
// new start of stopped data connections in verbs_restart.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/socket.hpp"
#include "transport/verbs/verbs.hpp"
#include "transport/verbs/verbs_inbox.hpp"
#include "transport/verbs/verbs_outbox.hpp"

namespace pith {

class VerbsRanks final : public VerbsTransport {
 public:
  using Rails = std::vector<std::unique_ptr<VerbsRail>>;
  VerbsRanks(const VerbsLibrary& library, Rails rails, Scheduler& scheduler, Mailbox& mailbox,
             int rank, int ranks, const VerbsOptions& options);
  ~VerbsRanks() override;

  Expected<std::string> listen() override;
  Error attach(std::span<const std::string> addresses, std::vector<bool>& attached,
               const Patience& patience) override;
  Error connect(std::span<const std::string> addresses, std::span<const std::uint8_t> use,
                const Patience& patience) override;
  void close(std::uint64_t deadline_ns) override;
  void look_at_links(std::uint64_t now_ns) override;

  std::string_view name() const override { return "verbs"; }
  bool start(Send& send) override;
  std::size_t slot_bytes() const override { return verbs_payload_max; }
  MemoryHandle expose(int, Bytes) override { return {}; }
  std::byte* map(int, MemoryHandle) override { return nullptr; }
  bool progress() override;
  bool busy() const override;
  int descriptor() const override { return epoll_.get(); }
  bool arm() override;
  void disarm() override {}
  void quiesce(const CommState& comm, const Error& error) override;
  std::uint64_t heard_from(int peer) const override {
    return by_rank_[static_cast<std::size_t>(peer)]->heard;
  }
  void for_each_sending(const std::function<void(const Send&)>& see) const override;

 private:
  // How far a new start of the data connections has come.
  enum class Restart : std::uint8_t {
    none,
    stopped,  // this side has stopped
    said,     // ...and has told the peer its new ends
  };
  struct Peer {
    Peer(VerbsRanks& all, int number)
        : rank(number),
          control(all.slots_, number),
          lanes(number),
          inbox(all.mailbox_, all.memory_, control, lanes, number),
          outbox(all.shared_, control, lanes) {}

    int rank;
    VerbsControl control;
    VerbsLanes lanes;
    VerbsInbox inbox;
    VerbsOutbox outbox;
    Error error;        // set once the peer is lost or gone
    bool live = false;  // connected, and neither lost nor gone
    bool said_farewell = false;
    std::uint64_t heard = 0;  // frames and notices that have come
    std::uint64_t heard_ns = 0;
    Restart restart = Restart::none;
    int restarts = 0;  // since data last arrived or departed
    bool has_their_restart = false;
    std::uint32_t their_epoch = 0;
    VerbsRestart their_restart;
  };

  static bool is_data(const ibv_wc& completion);
  Peer* peer_of(const ibv_wc& completion);
  void count(const ibv_wc& completion);
  bool gather();
  bool act_on_all();
  void act(const ibv_wc& completion);
  void act_on_frame(Peer& peer, std::uint32_t slot);
  const char* heed(Peer& peer, std::uint32_t slot, const VerbsHead& head);
  void act_on_data(Peer& peer, const ibv_wc& completion);
  bool pump(Peer& peer);
  bool check_peer(Peer& peer);
  bool leave_in_order(Peer& peer);
  void lose(Peer& peer, std::string_view how);
  void let_go(Peer& peer);
  void report_lost();
  void heed_events();

  void stop_data(Peer& peer);
  const char* restart_came(Peer& peer, const VerbsHead& head, const std::byte* payload);
  void act_on_data_of(Peer& peer);
  void say_restart(Peer& peer);
  void resume_data(Peer& peer);

  Error make_ends();
  Error watch(int descriptor);
  void turn(std::uint64_t deadline_ns);
  std::uint32_t window_for(int ranks) const;

  const VerbsLibrary& library_;
  const Rails rails_;
  Scheduler& scheduler_;
  Mailbox& mailbox_;
  const int rank_;
  const int ranks_;
  const std::uint32_t window_;
  VerbsSlots slots_;
  VerbsMemory memory_;
  VerbsShared shared_;
  Descriptor epoll_;
  std::vector<std::unique_ptr<Peer>> by_rank_;
  std::vector<Peer*> peers_;  // connected now or before
  std::vector<Peer*> unreported_;
  std::vector<ibv_wc> completions_;  // counted, not acted upon
  std::size_t acted_ = 0;            // of these
  bool armed_ = false;
  bool closing_ = false;
};

}  // namespace pith
