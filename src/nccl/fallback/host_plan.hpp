// Sums that may be compressed with hierarchy=host, of device memory, where another NCCL is at hand:
// it does what is to be done inside hosts, as its ground are the links between their devices.
//
//   the other NCCL  reduce-scatter among the ranks of a host
//   Pith            sum of each rank's part with the ranks of the same place on the other hosts;
//                   this is what the ranks vote on, and what has a compressor
//   the other NCCL  all-gather among the ranks of a host
//
// All of it is in the order of the caller's stream, and in the caller's memory: parts lie in recv,
// where they belong.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/communicator.hpp"
#include "core/error.hpp"
#include "nccl/call.hpp"
#include "nccl/fallback/fallback.hpp"

namespace pith::nccl {

// Of one communicator. Threads: abort() and async_error() from any, the rest from the one that
// makes calls.
class HostPlan {
 public:
  // Null where hosts are not alike, or there is one, or each has one rank. Collective; `twin`: of
  // `whole`, with its context current. Whatever revokes one of our communicators revokes both.
  static Expected<std::unique_ptr<HostPlan>> make(const Fallback& library, const FallbackComm& twin,
                                                  Communicator& whole,
                                                  const Expected<Settings>& settings);

  // The same on all ranks, like Fallback::takes(). Precondition: an all-reduce by sum or average of
  // f32, f16 or bf16 that may be compressed.
  bool takes(const NcclCall& call) const;
  // Pith's part of the call, among the ranks of between().
  NcclCall own_part(const NcclCall& call) const;
  const std::shared_ptr<Communicator>& between() const { return between_; }
  // Before that, and behind it.
  Error reduce_scatter(const NcclCall& call) const;
  Error all_gather(const NcclCall& call) const;

  ncclResult_t async_error() const { return inside_.async_error(); }
  // Ends what runs between hosts, here and, if anything did, at the other ranks.
  void abort_between() {
    if (!between_->leave()) between_->abort();
  }
  // Ends what runs in the other NCCL; there `twin`, too, unless it is null.
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
  const std::size_t places_;  // ranks of every host
  std::shared_ptr<Communicator> between_;
};

}  // namespace pith::nccl
