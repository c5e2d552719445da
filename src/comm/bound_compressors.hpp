// The compressors that a communicator's calls use, and the gradients that a shrink returns to them.
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
  // `owner`: the communicator to which the compressors are bound.
  BoundCompressors(Communicator& owner, Links& links, const RevocationState& revocation)
      : owner_(owner), links_(links), revocation_(revocation) {}

  // Binds the compressor's calls and their numbers to this communicator: after a shrink, calls that
  // other ranks did not complete return to its residual. Call it only when the call can no longer
  // be refused. Precondition: a shared pointer holds the owner.
  void bind(const std::shared_ptr<Compressor>& compressor);
  // The error for which a compressed call that begins on this thread is refused; it leaves the
  // compressors unchanged. Precondition: there is at least one tensor. A call on a stream is
  // checked when it is enqueued.
  Error check(std::span<const CompressedTensor> tensors) const;
  // Whether the compressors are bound to the owner: it is neither revoked nor shrunk.
  bool holds() const {
    return !revocation_.is_revoked() && !shrunk_.load(std::memory_order_acquire);
  }
  // For a compressed call that failed before it was issued: adds the gradients to the accumulators.
  void absorb(std::span<CompressedTensor> tensors);
  // Called after a shrink. `completed`: the last call that all survivors have completed.
  // Precondition: if the owner is revoked, no call runs.
  void give_back(std::uint64_t completed);

 private:
  Communicator& owner_;
  Links& links_;
  const RevocationState& revocation_;
  std::vector<std::weak_ptr<Compressor>> compressors_;  // that calls have used
  std::atomic<bool> shrunk_{false};
};

}  // namespace pith
