// Makes sums of device memory that may be compressed with hierarchy=host if another NCCL is
// available, which does the part inside hosts over the links between devices.
//
//  the other NCCL  reduce-scatter among the ranks of a host
//  Pith            sum of each rank's part with the ranks of the same place on the other hosts;
//                  this is what the ranks vote on, and what has a compressor
//  the other NCCL  all-gather among the ranks of a host
//
// All of it is ordered on the caller's stream and uses the caller's memory: parts are in recv, at
// their final position.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/communicator.hpp"
#include "core/error.hpp"
#include "nccl/call.hpp"
#include "nccl/fallback/fallback.hpp"

namespace pith::nccl {

// Belongs to one communicator. Threads: abort() and async_error() from any, the rest from the one
// that makes calls.
class HostPlan {
 public:
  // Null if there is only one host, hosts have different numbers of ranks, or each has one rank.
  // Collective. `twin` is the other library's communicator of `whole`; its context is current.
  // Revoking one of our two communicators revokes both.
  static Expected<std::unique_ptr<HostPlan>> make(const Fallback& library, const FallbackComm& twin,
                                                  Communicator& whole,
                                                  const Expected<Settings>& settings);

  // The same answer on all ranks, like Fallback::takes(). Precondition: an all-reduce by sum or
  // average of f32, f16 or bf16 that may be compressed.
  bool takes(const NcclCall& call) const;
  // Pith's part of the call, among the ranks of between().
  NcclCall own_part(const NcclCall& call) const;
  const std::shared_ptr<Communicator>& between() const { return between_; }
  // The steps before and after Pith's part.
  Error reduce_scatter(const NcclCall& call) const;
  Error all_gather(const NcclCall& call) const;

  ncclResult_t async_error() const { return inside_.async_error(); }
  // Aborts what runs between hosts; other ranks are told only if something ran.
  void abort_between() {
    if (!between_->leave()) between_->abort();
  }
  // Aborts what runs in the other NCCL, and `twin` with it unless null.
  void abort_there(FallbackComm* twin);
  void drain() { between_->drain(); }

 private:
  HostPlan(const Fallback& library, ncclComm_t inside, int place, int places)
      : library_(library),
        inside_(library, inside),
        place_(static_cast<std::size_t>(place)),
        places_(static_cast<std::size_t>(places)) {}
  std::size_t each_of(const NcclCall& call) const;
  NcclCall rest_of(const NcclCall& call) const;
  Error issue(const NcclCall& parts, const NcclCall& rest) const;

  const Fallback& library_;
  FallbackComm inside_;
  const std::size_t place_;   // of this rank on its host
  const std::size_t places_;  // ranks per host
  std::shared_ptr<Communicator> between_;
};

}  // namespace pith::nccl
