// All that a rank has with one peer: the control connection, the data connections, both halves of
// the traffic, and the new start of data connections that have stopped (verbs_restart.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "transport/transport.hpp"
#include "transport/verbs/verbs_completions.hpp"
#include "transport/verbs/verbs_inbox.hpp"
#include "transport/verbs/verbs_outbox.hpp"

namespace pith {

class VerbsPair {
 public:
  VerbsPair(Mailbox& mailbox, VerbsSlots& slots, const VerbsShared& shared,
            VerbsCompletions& completions, int rank)
      : mailbox_(mailbox),
        completions_(completions),
        rank_(rank),
        control_(slots, rank),
        lanes_(rank),
        inbox_(mailbox, *shared.memory, control_, lanes_, rank),
        outbox_(shared, control_, lanes_) {}

  // Start-up, in this order; see PeerTransport.
  Error make(std::span<const std::unique_ptr<VerbsRail>> rails, std::uint32_t window);
  VerbsAddress::Ends ends() const { return {control_.end(), lanes_.ends()}; }
  Error meet(const VerbsAddress& theirs);
  Error open();
  // Destroys the connections; operations end with the error.
  void close(const Error& error);

  int rank() const { return rank_; }
  // Connected, and neither lost nor gone.
  bool is_live() const { return live_; }
  std::uint64_t heard() const { return heard_; }

  // True: complete at once.
  bool start(Send& send);
  void act(const ibv_wc& completion);
  // Reads the message that has come with the next completion; see Transport. None: it is of
  // something else, and to be acted upon.
  Front take_front(const ibv_wc& completion, const Header& header, const FrontReader& reader);
  // Moves what can be moved, and looks whether the peer is still there; true if anything happened.
  bool progress();
  bool can_progress() const;
  bool busy() const;
  void quiesce(const CommState& comm, const Error& error);
  void for_each_sending(const std::function<void(const Send&)>& see) const {
    outbox_.for_each_sending(see);
  }
  // Asks the peer's device, if something waits and nothing has been heard for a while.
  void look(std::uint64_t now_ns);
  // The peer is lost: hardware lets go of all memory, then sends end.
  void lose(std::string_view how);
  // Once after that: ends what the mailbox waits for, and returns the error. Null: not lost.
  Error take_loss();

  // Leaves in order, in these steps; whether one is still to come to its end.
  enum class Leaving : std::uint8_t { sending, saying_goodbye, awaiting_answer };
  bool is(Leaving step) const;
  void say_goodbye();

 private:
  // How far a new start of the data connections has come.
  enum class Restart : std::uint8_t {
    none,
    stopped,  // this side has stopped
    said,     // ...and has told the peer its new ends
  };

  void act_on_frame(std::uint32_t slot);
  const char* heed_now(const VerbsHead& head, const VerbsSlot& came);
  void act_on_data(const ibv_wc& completion);
  bool check();
  void let_go();

  void stop_data();
  const char* restart_came(const VerbsHead& head, const std::byte* payload);
  void say_restart();

  Mailbox& mailbox_;
  VerbsCompletions& completions_;
  const int rank_;
  VerbsControl control_;
  VerbsLanes lanes_;
  VerbsInbox inbox_;
  VerbsOutbox outbox_;
  Error error_;
  bool live_ = false;
  bool closing_ = false;
  bool untold_loss_ = false;
  bool said_farewell_ = false;
  std::uint64_t heard_ = 0;         // frames and notices that have come
  std::uint64_t heard_before_ = 0;  // the last look at the link, which sets the time
  std::uint64_t heard_ns_ = 0;
  Restart restart_ = Restart::none;
  int restarts_ = 0;                           // since data last arrived or departed
  std::array<int, verbs_rails_max> breaks_{};  // by lane, the same of it alone
};

}  // namespace pith
