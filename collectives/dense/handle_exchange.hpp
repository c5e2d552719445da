// Opening and closing of a collective over views. The opening: every rank tells every peer, in one
// small message each way, how the peer can reach its two buffers. The closing: every rank tells the
// peers that it will not touch their buffers any more.
//
// On device memory a rank awaits all answers before it decides who reads what, because a peer's
// call may be on host memory, which kernels do not reach: such memory is copied before kernels read
// it. The closing is sent after all kernels have ended.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "collectives/inplace_vector.hpp"
#include "collectives/typed_span.hpp"
#include "core/peer_memory.hpp"

namespace pith {

// Larger communicators do not use views: the opening alone would cost P - 1 messages a rank.
inline constexpr int most_view_ranks = 32;

// Cost of one round in which every rank sends its vector to all others and reduces all vectors.
inline double one_round_cost(const Shape& shape, const LinkCost& link) {
  const double peers = shape.ranks - 1;
  const auto n = static_cast<double>(shape.bytes);
  return link.alpha + (peers - 1) * link.message + peers * (link.beta + link.gamma) * n;
}

// What becomes of memory that a peer cannot load from, but can copy.
enum class Copies : std::uint8_t {
  never,   // it is out of reach
  as_set,  // it is copied where the transport's settings say so (PITH_COPY_BYTES)
  always,
};
inline Copies copies_of(const Tuning& tuning) {
  return tuning.copies ? Copies::always : Copies::as_set;
}

// What this rank and one peer can reach of each other's buffers.
struct PeerHandles {
  std::byte* send;  // the peer's buffers as addresses here; null: out of reach
  std::byte* recv;
  std::uint64_t far_send;  // where copy_from and copy_to find the peer's buffers; 0: they cannot
  std::uint64_t far_recv;
  bool sees_send;  // whether the peer reaches this rank's buffers
  bool sees_recv;
  bool copies_only;  // the peer's buffers are host memory, ours a device's: only copies lead there

  bool any() const {
    return send || recv || far_send != 0 || far_recv != 0 || sees_send || sees_recv;
  }
};

class HandleExchange {
 public:
  // Lanes of the opening and closing messages; algorithms use lower ones.
  static constexpr std::uint16_t open_lane = 100;
  static constexpr std::uint16_t close_lane = 101;

  HandleExchange(Call& call, Bytes send, Bytes recv, Copies copies = Copies::never)
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

  // Runs `work`, which calls hear(), between an opening and a closing. When this returns without an
  // error, every peer that reached this rank's buffers has finished with them. An error skips the
  // closing.
  Task<Error> around(Task<Error> work);

  // tell() sends this rank's opening, to rank+1, rank+2, ...; hear() receives the peers'. Neither
  // does anything where no ranks share memory. An algorithm calls tell() itself if its own messages
  // tell it that all ranks have finished.
  Task<Error> tell();
  Task<Error> hear();
  // Whether some peer cannot read this rank's send buffer, so that it must be sent, and whether
  // some peer cannot store into its recv buffer, so that it sends. Also valid before hear().
  bool hides_send() const {
    return any_peer([](const PeerHandles& theirs) { return !theirs.sees_send; });
  }
  bool hides_recv() const {
    return any_peer([](const PeerHandles& theirs) { return !theirs.sees_recv; });
  }
  // After hear(): whether devices' kernels reach all buffers, this rank's and its peers', both
  // ways.
  bool all_on_device() const {
    return on_device_ && !any_peer([](const PeerHandles& theirs) {
             return theirs.copies_only || !theirs.send || !theirs.recv || !theirs.sees_send ||
                    !theirs.sees_recv;
           });
  }
  // After hear(): whether some buffer is in reach, so that a closing is needed.
  bool any() const {
    return any_peer([](const PeerHandles& theirs) { return theirs.any(); });
  }
  // After hear(): whether kernels of this rank's device reach the send buffers of all peers.
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
  Task<Error> close();
  // The communicator's number of a rank.
  int number_of(int rank) const { return call_.route(rank).peer; }
  static PeerMemory* find_peer_memory(Compute& compute);
  std::uint64_t describe(int rank, Bytes memory, std::optional<bool>& by_messages);
  Message describe(int rank);
  std::uint64_t expose(int rank, std::uint64_t mine);
  Task<Error> tell_on_device();
  Error take(int from, Message message);
  void take_host(int from, Message message);
  Error take_device(int from, Message message);

  Call& call_;
  Bytes send_;
  Bytes recv_;
  Copies copies_;
  bool on_device_;
  bool heard_ = false;
  PeerMemory* peer_memory_;
  // Only the first size() entries are initialised: clearing all of them would cost a short call as
  // much as its messages.
  std::array<PeerHandles, most_view_ranks> handles_;
  std::array<Message, most_view_ranks> mine_;
  std::array<Message, most_view_ranks> theirs_;
};

// The messages that one strand has borrowed at a time, at most one of each rank.
class Leases {
 public:
  const std::byte* add(Borrowed&& lent) { return lent_.add(std::move(lent)).data; }
  // The messages are not read after the fence.
  void give_back(Call& call, Fence fence) {
    for (Borrowed& one : lent_.all()) call.give_back(one, fence);
    lent_.clear();
  }

 private:
  InplaceVector<Borrowed, most_view_ranks> lent_;
};

}  // namespace pith
