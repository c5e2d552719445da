// When the calls of a revoked communicator may return: once no peer touches their buffers.
//
// Peers that reach our memory may be in the middle of a copy when the communicator is revoked, so
// our calls return only when all of them have ended their own: a gather over those that live. One
// that has been stopped does not answer, so there is a limit.
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

  // Whenever a call has ended or the communicator is revoked: where no call runs any more, the
  // others hear so. Here and in the next one with the token.
  void look();
  // Whether a call that fails may have left peers in the middle of its memory.
  bool peers_may_touch() const { return links_.state().revoked && links_.state().exposed; }

  bool settled(std::uint64_t now_ns) const;
  void wait();
  // A background call has ended. Its owner may free what belongs to it once it knows.
  void finish(BackgroundCall& call, const Error& error);
  void finish_settled(std::uint64_t now_ns);

 private:
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
