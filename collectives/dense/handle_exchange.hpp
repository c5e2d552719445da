// The opening of a collective over views: every rank tells every other how it can reach the two
// buffers, in one small message each way; the closing: that it will not touch them any more.
//
// On device memory a rank waits for the answers before it decides who reads what, since a peer's
// call may be on host memory, where its kernels cannot follow; and the closing goes behind all
// kernels. Host memory of a peer is copied before kernels of a device may read it.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "collectives/typed_span.hpp"
#include "core/peer_memory.hpp"

namespace pith {

// Larger communicators do not use views: they would cost P - 1 messages a rank.
inline constexpr int most_view_ranks = 32;

// Where every rank sends its vector to every other one and reduces all of them itself.
inline double one_round_cost(const Shape& shape, const LinkCost& link) {
  const double peers = shape.ranks - 1;
  const auto n = static_cast<double>(shape.bytes);
  return link.alpha + peers * (link.beta + link.gamma) * n;
}

// What one peer and this rank can reach of each other.
struct PeerHandles {
  std::byte* send;  // the peer's buffers as addresses here; null: by messages only
  std::byte* recv;
  std::uint64_t far_send;  // where the peer's buffers can be copied from and to; 0: not so
  std::uint64_t far_recv;
  bool sees_send;  // whether the peer reaches ours
  bool sees_recv;
  bool copies_only;  // its buffers are host memory and ours a device's: only copies lead there

  bool any() const {
    return send || recv || far_send != 0 || far_recv != 0 || sees_send || sees_recv;
  }
};

class HandleExchange {
 public:
  // Lanes of the opening and closing messages; algorithms use those below.
  static constexpr std::uint16_t open_lane = 100;
  static constexpr std::uint16_t close_lane = 101;

  // `copies`: the algorithm also knows what to do with memory that can only be copied.
  HandleExchange(Call& call, Bytes send, Bytes recv, bool copies = false)
      : call_(call),
        send_(send),
        recv_(recv),
        copies_(copies),
        on_device_(send.kind != MemoryKind::host || recv.kind != MemoryKind::host),
        peer_memory_(on_device_ ? find_peer_memory(call.compute()) : nullptr) {
    std::fill_n(handles_.begin(), call.size(), PeerHandles{});
  }
  FrameArena& frame_arena() const { return call_.frame_arena(); }

  const PeerHandles& operator[](int rank) const { return handles_[static_cast<std::size_t>(rank)]; }

  // The work, which calls hear(), between an opening and a closing: when this returns, every peer
  // that reached our memory has finished with it. After an error nothing is closed.
  Task<Error> around(Task<Error> work);

  // The opening, and its answers; nothing where no ranks share memory. Peers in the order rank+1,
  // rank+2, ... tell() is for those who learn by other messages that everybody has finished.
  Task<Error> tell();
  Task<Error> hear();
  // Also before hear(), while the answers come: whether a peer must be sent what it cannot read, or
  // sends what it cannot store.
  bool hides_send() const {
    return any_peer([](const PeerHandles& theirs) { return !theirs.sees_send; });
  }
  bool hides_recv() const {
    return any_peer([](const PeerHandles& theirs) { return !theirs.sees_recv; });
  }
  // After hear(): whether kernels of a device reach all buffers of all ranks, both ways.
  bool all_on_device() const {
    return on_device_ && !any_peer([](const PeerHandles& theirs) {
             return theirs.copies_only || !theirs.send || !theirs.recv || !theirs.sees_send ||
                    !theirs.sees_recv;
           });
  }
  // The same of what they send, one way.
  bool all_sends_on_device() const {
    return on_device_ &&
           !any_peer([](const PeerHandles& theirs) { return theirs.copies_only || !theirs.send; });
  }
  bool any_copies_only() const {
    return on_device_ && any_peer([](const PeerHandles& theirs) { return theirs.copies_only; });
  }

 private:
  struct Message {
    std::uint64_t send;
    std::uint64_t recv;
  };
  template <class Test>
  bool any_peer(Test test) const {
    for (int d = 1; d < call_.size(); ++d) {
      if (test((*this)[peer(d)])) return true;
    }
    return false;
  }
  int peer(int distance) const { return wrap(call_.rank() + distance, call_.size()); }
  // After hear(): whether there is anything to close.
  bool any() const {
    return any_peer([](const PeerHandles& theirs) { return theirs.any(); });
  }
  Task<Error> close();
  // As its communicator counts it.
  int number_of(int rank) const { return call_.route(rank).peer; }
  static PeerMemory* find_peer_memory(Compute& compute);
  std::uint64_t describe(int rank, Bytes memory);
  Message describe(int rank);
  std::uint64_t expose(int rank, std::uint64_t mine);
  Task<Error> tell_on_device();
  Error take(int from, Message message);
  void take_host(int from, Message message);
  Error take_device(int from, Message message);

  Call& call_;
  Bytes send_;
  Bytes recv_;
  bool copies_;
  bool on_device_;
  bool heard_ = false;
  PeerMemory* peer_memory_;
  // One entry a rank; the others are left alone, for clearing all of them would cost a short call
  // as much as its messages.
  std::array<PeerHandles, most_view_ranks> handles_;
  std::array<Message, most_view_ranks> mine_;
  std::array<Message, most_view_ranks> theirs_;
};

// What one strand has borrowed at a time, at most a message of each rank.
class Leases {
 public:
  Leases() = default;
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;
  ~Leases() { clear(); }

  const std::byte* add(Borrowed&& lent) {
    return std::construct_at(at(count_++), std::move(lent))->data;
  }
  // Nothing of them is read after the fence.
  void give_back(Call& call, Fence fence) {
    for (std::size_t i = 0; i < count_; ++i) call.give_back(*at(i), fence);
    clear();
  }

 private:
  Borrowed* at(std::size_t i) { return reinterpret_cast<Borrowed*>(storage_) + i; }
  void clear() {
    std::destroy_n(at(0), count_);
    count_ = 0;
  }

  std::size_t count_ = 0;
  alignas(Borrowed) std::byte storage_[most_view_ranks * sizeof(Borrowed)];
};

}  // namespace pith
