// Keeps a revoked communicator's calls from returning while peers touch their buffers, 0.7 s at
// most.
//
// A peer that reaches our memory may be in the middle of a copy when the communicator is revoked.
// Our calls return only when all live ranks have ended their own, which a gather tells. The limit
// is for ranks that have been stopped and do not answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/calls_under_way.hpp"
#include "comm/comm_identity.hpp"
#include "comm/links.hpp"

namespace pith {

struct BackgroundCall;

class Settling {
 public:
  Settling(Links& links, const CallsUnderWay& calls, const CommIdentity& who)
      : links_(links), calls_(calls), who_(who) {}
  ~Settling() { finish_all(); }

  // Called when a call has ended or the communicator is revoked. Once no call runs here, tells the
  // other ranks. This function and the next need the engine's token.
  void look() {
    if (links_.state().revoked) [[unlikely]]
      look_revoked();
  }
  // Whether a peer may still be copying from or to the memory of a call that fails.
  bool peers_may_touch() const { return links_.state().revoked && links_.state().exposed; }

  bool settled(std::uint64_t now_ns) const;
  void wait();
  // Ends a background call, at once or once settled. Then its owner may free the call's memory.
  void finish(BackgroundCall& call, const Error& error);
  void finish_settled(std::uint64_t now_ns);

 private:
  void look_revoked();
  void finish_all();

  Links& links_;
  const CallsUnderWay& calls_;
  const CommIdentity& who_;
  std::atomic<bool> begun_{false};
  std::atomic<bool> all_settled_{false};
  std::atomic<std::uint64_t> since_ns_{0};
  std::mutex mutex_;
  std::vector<std::pair<BackgroundCall*, Error>> unsettled_;
};

}  // namespace pith
