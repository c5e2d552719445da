// The compressors of a communicator: which ones have called, and what returns to them.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "collectives/compressed.hpp"
#include "comm/links.hpp"
#include "comm/revocation/revocation_state.hpp"

namespace pith {

class Communicator;

class BoundCompressors {
 public:
  // `owner`: whom they are bound to.
  BoundCompressors(Communicator& owner, Links& links, const RevocationState& revocation)
      : owner_(owner), links_(links), revocation_(revocation) {}

  // The compressor's calls, and their numbers, are this communicator's from now on: after a shrink,
  // those that others did not complete go back to its residual. Only with a call that is no longer
  // refused. Precondition: a shared pointer holds the owner.
  void bind(const std::shared_ptr<Compressor>& compressor);
  // What a compressed call that begins on this thread is refused for, before its compressors hear
  // of it. Precondition: there are tensors; a stream's are checked when it is enqueued.
  Error check(std::span<const CompressedTensor> tensors) const;
  // Whether they are held: the owner is neither revoked nor shrunk.
  bool holds() const {
    return !revocation_.is_revoked() && !shrunk_.load(std::memory_order_acquire);
  }
  // A compressed call that failed before it was issued: gradients go to the accumulators.
  void absorb(std::span<CompressedTensor> tensors);
  // After a shrink: the survivors have agreed on the last call that all of them completed.
  // Precondition: no call runs, where the owner is revoked.
  void give_back(std::uint64_t completed);

 private:
  Communicator& owner_;
  Links& links_;
  const RevocationState& revocation_;
  std::vector<std::weak_ptr<Compressor>> compressors_;  // that have called
  std::atomic<bool> shrunk_{false};
};

}  // namespace pith
