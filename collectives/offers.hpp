// The opening of an allreduce over views: every rank tells every other how it can reach the two
// buffers, in one small message each way; the closing: that it will not touch them any more.
#pragma once

#include <array>

#include "collectives/typed_span.hpp"

namespace pith {

// Larger communicators do not use views: they would cost P - 1 messages a rank.
inline constexpr int most_view_ranks = 32;

// What one peer and this rank can reach of each other.
struct Offer {
  std::byte* send = nullptr;  // the peer's buffers as addresses here; null: by messages only
  std::byte* recv = nullptr;
  std::uint64_t far_send = 0;  // where the peer's buffers can be copied from and to; 0: not so
  std::uint64_t far_recv = 0;
  bool sees_send = false;  // whether the peer reaches ours
  bool sees_recv = false;

  bool any() const {
    return send || recv || far_send != 0 || far_recv != 0 || sees_send || sees_recv;
  }
};

class Offers {
 public:
  // Lanes of the opening and closing messages; algorithms use those below.
  static constexpr std::uint16_t open_lane = 100;
  static constexpr std::uint16_t close_lane = 101;

  // `copies`: the algorithm also knows what to do with memory that can only be copied.
  Offers(Call& call, Bytes send, Bytes recv, bool copies = false)
      : call_(call), send_(send), recv_(recv), copies_(copies) {}
  FrameArena& frame_arena() const { return call_.frame_arena(); }

  const Offer& operator[](int rank) const { return offers_[static_cast<std::size_t>(rank)]; }

  // The opening; nothing where no ranks share memory. Peers in the order rank+1, rank+2, ...
  // After tell() is known which peers reach our buffers, so that they are sent to the others
  // while the answers come; after hear() the rest.
  Task<Error> tell();
  Task<Error> hear();
  // Returns once every peer that reached our memory has finished with it.
  Task<Error> close();

 private:
  struct Message {
    std::uint64_t send;
    std::uint64_t recv;
  };
  int peer(int distance) const { return wrap(call_.rank() + distance, call_.size()); }
  std::uint64_t describe(int rank, Bytes memory);
  Message describe(int rank);

  Call& call_;
  Bytes send_;
  Bytes recv_;
  bool copies_;
  std::array<Offer, most_view_ranks> offers_{};
  std::array<Message, most_view_ranks> mine_{};
  std::array<Message, most_view_ranks> theirs_{};
};

}  // namespace pith
