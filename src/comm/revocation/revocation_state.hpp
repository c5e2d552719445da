// The end of a communicator: who revokes it, and who hears of it.
//
// With the engine's token: what says so. All else: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "comm/calls_under_way.hpp"
#include "comm/comm_identity.hpp"
#include "comm/links.hpp"
#include "comm/revocation/deaths.hpp"
#include "comm/revocation/dispute.hpp"
#include "comm/revocation/settling.hpp"
#include "control/call_recorder.hpp"

namespace pith {

class RevocationState {
 public:
  RevocationState(Links& links, const CallsUnderWay& calls, const CallRecorder& recorder,
                  const CommIdentity& who);
  RevocationState(const RevocationState&) = delete;
  RevocationState& operator=(const RevocationState&) = delete;

  Settling& settling() { return settling_; }
  Dispute& dispute() { return dispute_; }
  bool is_revoked() const { return is_revoked_.load(std::memory_order_acquire); }
  // What revokes this one revokes the other, too, at all ranks of that: a child, or its parent.
  void takes_along(CommKey other) { taken_along_ = other; }

  // With the token: here, and the other ranks hear of it by the control plane.
  void revoke(const Error& cause);
  // The same for what the data path sees, which may be the consequence of something else.
  void revoke_for_loss(const Error& error);
  // With the token. A call that begins now would need the dead.
  void revoke_if_any_died() {
    if (deaths_.any() && !links_.state().revoked) [[unlikely]]
      revoke_for_death();
  }
  // With the token. What a call that begins now is refused for.
  Error refuses_calls();
  // This rank gives it up.
  void abort();
  // With the token: the same, but that nobody else hears of it.
  void leave();
  void close(std::uint64_t deadline_ns, const Error& why);

  // What revoked the communicator, if anything did. Not while this thread has the engine's token,
  // unlike is_revoked().
  Error error();
  Error first_death() const { return deaths_.first(); }
  // Ranks whose process or host is gone. After an error that names one, waits a little for the
  // control plane to confirm it.
  std::vector<int> failed();

  // By the control thread.
  void hear(const Error& error);
  void hear_of_death(const Error& error);
  Error refusal_of(std::uint32_t call) const;
  void look(std::uint64_t now_ns);

  // Drives the engine for a turn where nobody does.
  void drive_if_idle();

 private:
  Error heard() const;
  Error now();
  Error aborted_here() const;
  bool has_ended(int rank) const;
  void revoke_for_death();
  void look_soon_at_dead();

  Links& links_;
  const CallRecorder& recorder_;
  const CommIdentity& who_;
  Deaths deaths_;
  Dispute dispute_;
  Settling settling_;
  std::atomic<bool> is_revoked_{false};  // for whoever does not hold the engine
  std::atomic<CommKey> taken_along_{0};  // 0: none
  mutable std::mutex heard_mutex_;
  Error heard_;  // what revoked the communicator elsewhere
  Work heard_work_;
  std::atomic<bool> heard_posted_{false};
  Work dead_work_;
  std::atomic<bool> dead_posted_{false};
};

}  // namespace pith
