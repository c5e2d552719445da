// Revokes a communicator on this rank and tells the others, or learns from them that it is revoked.
//
// Any thread, unless a function says that it needs the engine's token.
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
  // An error that revokes this communicator revokes `other`, its parent or child, on all its ranks.
  void takes_along(CommKey other) { taken_along_ = other; }

  // With the token. Revokes the communicator on this rank and reports it through the control plane.
  void revoke(const Error& cause);
  // The same for a failure that the data path sees, which may be the consequence of another one.
  void revoke_for_loss(const Error& error);
  // With the token. Called before a call begins, which would need the dead rank.
  void revoke_if_any_died() {
    if (deaths_.any() && !links_.state().revoked) [[unlikely]]
      revoke_for_death();
  }
  // With the token. The error for which a call that begins now is refused.
  Error refuses_calls() {
    const bool healthy = !is_revoked_.load(std::memory_order_relaxed) && !deaths_.any();
    if (healthy && !links_.state().revoked) [[likely]]
      return {};
    return refusal();
  }
  // Aborts the communicator.
  void abort();
  // With the token. As abort(), without telling the other ranks.
  void leave();
  void close(std::uint64_t deadline_ns, const Error& why);

  // The error that revoked the communicator, if any. Unlike is_revoked(), it must not be called
  // while this thread has the engine's token.
  Error error();
  Error first_death() const { return deaths_.first(); }
  // Ranks whose process or host is gone. If error() names a rank, waits a little for the control
  // plane to confirm its death.
  std::vector<int> failed();

  // Called by the control thread.
  void hear(const Error& error);
  void hear_of_death(const Error& error);
  Error refusal_of(std::uint32_t call) const;
  void look(std::uint64_t now_ns);

  // Drives the engine for one turn if no other thread does.
  void drive_if_idle();

 private:
  Error heard() const;
  Error refusal();
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
  std::atomic<bool> is_revoked_{false};  // for threads without the engine's token
  std::atomic<CommKey> taken_along_{0};  // 0: none
  mutable std::mutex heard_mutex_;
  Error heard_;  // the error that revoked it on another rank
  Work heard_work_;
  std::atomic<bool> heard_posted_{false};
  Work dead_work_;
  std::atomic<bool> dead_posted_{false};
};

}  // namespace pith
