// What one call by host keeps on each rank. Private to allreduce_by_host.cpp and
// by_host_result.cpp.
#pragma once

#include <optional>
#include <span>

#include "collectives/compressed.hpp"
#include "collectives/hosts.hpp"
#include "collectives/patterns.hpp"
#include "collectives/sub_call.hpp"

namespace pith::by_host {

inline Range slice_of(std::size_t count, const Hosts& hosts, int slice) {
  return block(count, hosts.slices(), slice);
}

// The slice that this rank owns, if any.
inline std::optional<int> own_slice(const Call& call, const Hosts& hosts) {
  const int index = hosts.index_of(call.rank());
  return index < hosts.slices() ? std::optional<int>(index) : std::nullopt;
}

struct ByHost {
  ByHost(Call& whole, const SparseCall& sparse)
      : call(whole),
        args(sparse),
        hosts(*whole.context().hosts),
        own(own_slice(whole, hosts)),
        inside(whole, static_cast<int>(neighbours().size()), whole.views(),
               [this](int i) { return neighbours()[static_cast<std::size_t>(i)]; }) {
    ranges_ = Scratch(whole.host_compute(), slices() * sizeof(Range));
    std::size_t begin = 0;
    for (std::size_t s = 0; s < slices(); ++s) {
      std::size_t size = 0;
      for (const CompressedTensor& tensor : args.tensors) {
        size += slice_of(tensor.count, hosts, static_cast<int>(s)).size;
      }
      ranges()[s] = {begin, size};
      begin += size;
    }
    elements = begin;
  }

  std::span<const int> neighbours() const { return hosts.ranks_of(hosts.host_of(call.rank())); }
  std::size_t slices() const { return static_cast<std::size_t>(hosts.slices()); }
  // The range of each slice, with its part of all tensors, in a vector of all slices.
  std::span<Range> ranges() const {
    return {reinterpret_cast<Range*>(ranges_.bytes().data), slices()};
  }
  Range part(const CompressedTensor& tensor, std::size_t slice) const {
    return slice_of(tensor.count, hosts, static_cast<int>(slice));
  }
  PairList& pairs(const CompressedTensor& tensor, std::size_t slice) const {
    return tensor.compressor->received(slices())[slice];
  }
  Compute& host() const { return call.host_compute(); }
  FrameArena& frame_arena() const { return call.frame_arena(); }

  Call& call;
  const SparseCall& args;
  const Hosts& hosts;
  const std::optional<int> own;
  SubCall inside;
  std::size_t elements = 0;
  bool nan = false;            // the gradient of some rank was not finite: nothing is delivered
  std::byte* given = nullptr;  // this rank's accumulators, slice by slice
  Scratch joined;              // memory of `given` for several tensors, or for a device
  Scratch sum;                 // of an owner: the sum of its slice

 private:
  Scratch ranges_;
};

// Gives every rank of a host the pairs of its owners.
Task<Error> share_result(ByHost& by);
void deliver(ByHost& by);

}  // namespace pith::by_host
