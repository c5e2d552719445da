// What one call by host keeps, on each rank; private to it (allreduce_by_host.cpp).
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

// Whether the rank owns a slice at all, and which part of a tensor that is.
inline std::optional<int> own_slice(const Call& call, const Hosts& hosts) {
  const int index = hosts.index_of(call.rank());
  return index < hosts.slices() ? std::optional<int>(index) : std::nullopt;
}

// What one call keeps, on each rank.
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
  // Of the slices, each of all tensors, one behind the other.
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
  bool nan = false;            // somebody's gradient was not finite, and nothing is delivered
  std::byte* given = nullptr;  // by this rank, slice by slice
  Scratch joined;              // the same of several tensors, or of a device's
  Scratch sum;                 // an owner's: of its slice

 private:
  Scratch ranges_;
};

// Every rank of a host gets the pairs that its owners have, and writes its result.
Task<Error> share_result(ByHost& by);
void deliver(ByHost& by);

}  // namespace pith::by_host
