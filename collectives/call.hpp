// One collective call as its algorithm sees it: this rank, its peers, and the verbs that move data.
//
// An algorithm is a coroutine `Task<Error> allreduce_ring(Call& call, CollectiveArgs args)`. Its
// strands run on one scheduler, so they share plain variables. Every verb returns an awaiter. A
// verb that fails revokes the communicator, so that no other strand or rank waits for ever.
//
// Ranks are places in the communicator's order (rank_order.hpp). Only the blocks of the caller's
// buffers go by the caller's ranks, which rank_at() returns.
//
// An algorithm never asks where a buffer is. The verbs stage device memory through scratch, on the
// host or in device memory that the network reaches, and fences order kernels and messages.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/rank_order.hpp"
#include "core/channel.hpp"
#include "core/compute.hpp"
#include "core/kernel_args.hpp"
#include "core/mailbox.hpp"
#include "core/task.hpp"
#include "transport/transport.hpp"

namespace pith {

class Chooser;
class Hosts;

// How this rank reaches another one. Its own route has no transport.
struct Route {
  Transport* transport = nullptr;
  int peer = -1;  // the rank's number in the transport and the mailbox
};

// What a Call needs of its communicator; constant while calls run.
struct CallContext {
  Scheduler* scheduler = nullptr;
  FrameArena* arena = nullptr;
  Mailbox* mailbox = nullptr;
  Compute* compute = nullptr;  // for the call's kind of memory
  Compute* host = nullptr;     // for staging and host results
  CommState* comm = nullptr;
  std::span<const Route> routes;  // by rank, as ranks are counted here
  int rank = 0;
  const RankOrder* order = &order_by_rank;
  int size = 1;
  const Hosts* hosts = nullptr;  // null: every rank has a host of its own
  bool views = false;            // whether some pair of ranks shares memory; equal on all ranks
  bool all_views = false;        // whether every pair does; choices may depend on it
  const Chooser* chooser = nullptr;
  // Revokes the communicator on this rank, which tells the others; idempotent.
  void (*revoke)(void* context, const Error& error) = nullptr;
  void* revoke_context = nullptr;
};

class SendAwaiter;
class RecvAwaiter;
class RecvSomeAwaiter;
class BorrowAwaiter;
class ExchangeAwaiter;
class ExchangeBorrowAwaiter;
class UntilAwaiter;
class TurnAwaiter;

// A received message that kernels read where it lies, until Call::give_back().
struct Borrowed {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  Lease lease;
  Scratch staged;
};

// For the peer of an exchange where there is nothing to send, or nothing to receive.
inline constexpr int no_rank = -1;

class Call {
 public:
  Call(const CallContext& context, std::uint32_t number, std::uint64_t digest)
      : context_(context), number_(number), digest_(digest) {}
  // A part of a call, whose messages have lanes of their own, from `first_lane` on.
  Call(const Call& whole, std::uint16_t first_lane)
      : context_(whole.context_),
        number_(whole.number_),
        digest_(whole.digest_),
        first_lane_(static_cast<std::uint16_t>(whole.first_lane_ + first_lane)) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const CallContext& context() const { return context_; }
  int rank() const { return context_.rank; }
  int size() const { return context_.size; }
  // Convert between ranks here, which are places in the order, and the caller's ranks, by which the
  // blocks of its buffers lie.
  int rank_at(int rank) const { return context_.order->rank_at(rank); }
  int callers_rank() const { return rank_at(rank()); }
  int place_of(int callers_rank) const { return context_.order->place_of(callers_rank); }
  bool views() const { return context_.views; }
  bool all_views() const { return context_.all_views; }
  const Chooser& chooser() const { return *context_.chooser; }
  std::uint32_t number() const { return number_; }
  std::uint64_t digest() const { return digest_; }
  FrameArena& frame_arena() const { return *context_.arena; }
  Scheduler& scheduler() const { return *context_.scheduler; }
  Compute& compute() const { return *context_.compute; }
  Compute& host_compute() const { return *context_.host; }
  Mailbox& mailbox() const { return *context_.mailbox; }
  CommState& comm() const { return *context_.comm; }
  const Route& route(int rank) const { return context_.routes[static_cast<std::size_t>(rank)]; }

  // Sends a message, named by (lane, step), to rank `to` once `after` is reached. Awaits to Error;
  // resumes when `data` may be changed.
  SendAwaiter send(int to, std::uint16_t lane, std::uint32_t step, Bytes data, Fence after = {});
  // Receives a message, which must have exactly into.size bytes. Awaits to Error.
  RecvAwaiter recv(int from, std::uint16_t lane, std::uint32_t step, Bytes into);
  // Receives a message of at most into.size bytes into host memory. Awaits to
  // Expected<std::size_t>, its length.
  RecvSomeAwaiter recv_some(int from, std::uint16_t lane, std::uint32_t step, Bytes into);
  // Receives a message of exactly `size` bytes that kernels can read, without a copy. Awaits to
  // Expected<Borrowed>.
  BorrowAwaiter borrow(int from, std::uint16_t lane, std::uint32_t step, std::size_t size);
  // send and recv at the same time, under one name; no_rank: without the one or the other, whose
  // bytes are none. Awaits to Error.
  ExchangeAwaiter exchange(int to, int from, std::uint16_t lane, std::uint32_t step, Bytes data,
                           Bytes into, Fence after = {});
  // send and borrow at the same time, under one name, or only one of them, as above. Awaits to
  // Expected<Borrowed> of exactly `size` bytes.
  ExchangeBorrowAwaiter exchange_borrow(int to, int from, std::uint16_t lane, std::uint32_t step,
                                        Bytes data, std::size_t size, Fence after = {});
  // Suspends until the compute queue has passed the fence.
  UntilAwaiter until(Fence fence);
  // Yields to other strands and the transports, between two pieces of long work.
  TurnAwaiter turn();

  template <class Kernel>
  Fence run(const typename Kernel::Args& args, Fence after = {}) {
    return context_.compute->run<Kernel>(args, after);
  }
  bool reached(Fence fence) const { return fence.ticket == 0 || compute().reached(fence); }
  // Returns a borrowed message, which is not read after the fence: its slot goes back to the
  // transport then.
  void give_back(Borrowed& borrowed, Fence fence = {});

  // Access by load and store: expose() gives `peer` access to memory of this rank, map() returns
  // the address of memory that the peer has exposed; see Transport.
  // `for_copies`: for copies alone, also what is left to messages otherwise.
  MemoryHandle expose(int peer, Bytes memory, bool for_copies = false) const {
    if (memory.kind != MemoryKind::host) return {};
    const auto& [transport, number] = route(peer);
    const MemoryHandle handle = for_copies ? transport->expose_for_copies(number, memory)
                                           : transport->expose(number, memory);
    comm().exposed |= handle.reach != MemoryHandle::Reach::none;
    return handle;
  }
  std::byte* map(int peer, MemoryHandle handle) const {
    return route(peer).transport->map(route(peer).peer, handle);
  }
  // Scratch of the compute that the network accesses directly for a message of this size; empty:
  // the message goes by the host.
  Scratch direct_scratch(int peer, std::size_t bytes) const {
    if (compute().kind() == MemoryKind::host) return {};
    Transport& transport = *route(peer).transport;
    if (bytes < transport.direct_bytes(compute())) return {};
    Scratch scratch(compute(), bytes);
    return transport.reaches(scratch) ? std::move(scratch) : Scratch();
  }
  // Copy from and to memory that a peer has exposed for that. An error has failed the call.
  Error copy_from(int peer, std::uint64_t where, Bytes into) const;
  Error copy_to(int peer, std::uint64_t where, Bytes from) const;

  // Fails the call: the communicator is revoked, so every strand ends. Returns the first cause.
  Error fail(const Error& error) const;

  void prepare(Receive& receive, int from, std::uint16_t lane, std::uint32_t step) const;
  void prepare(Send& send, int to, std::uint16_t lane, std::uint32_t step, Bytes data) const;
  // Of a message of this call, to or from any rank.
  Header header(std::uint16_t lane, std::uint32_t step, std::size_t bytes) const;

 private:
  std::uint16_t lane_of(std::uint16_t lane) const {
    return static_cast<std::uint16_t>(first_lane_ + lane);
  }

  const CallContext& context_;
  std::uint32_t number_;
  std::uint64_t digest_;
  std::uint16_t first_lane_ = 0;
};

Error message_too_long(std::size_t bytes);

inline std::size_t ranks_of(const Call& call) { return static_cast<std::size_t>(call.size()); }

inline void Call::prepare(Receive& receive, int from, std::uint16_t lane,
                          std::uint32_t step) const {
  receive.comm = context_.comm;
  receive.peer = route(from).peer;
  receive.tag = {context_.comm->id, number_, step, lane_of(lane)};
  receive.digest = digest_;
}

inline Header Call::header(std::uint16_t lane, std::uint32_t step, std::size_t bytes) const {
  Header header;
  header.comm = context_.comm->id;
  header.call = number_;
  header.step = step;
  header.lane = lane_of(lane);
  header.length = static_cast<std::uint32_t>(bytes);
  header.digest = digest_;
  return header;
}

inline void Call::prepare(Send& send, int to, std::uint16_t lane, std::uint32_t step,
                          Bytes data) const {
  send.comm = context_.comm;
  send.peer = route(to).peer;
  send.header = header(lane, step, data.size);
  send.data = data.data;
  if (data.size > message_bytes_max) [[unlikely]]
    send.error = message_too_long(data.size);
}

}  // namespace pith

#include "collectives/verbs.hpp"
