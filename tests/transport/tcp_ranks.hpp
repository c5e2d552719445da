// Ranks as threads, each with its own scheduler, mailbox and TCP transport, and awaiters for them.
#pragma once

#include <poll.h>

#include <array>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/task.hpp"
#include "tests/transport/contents.hpp"
#include "transport/tcp/tcp.hpp"

namespace pith::test {

inline constexpr std::uint64_t second = 1'000'000'000;

struct TcpRank {
  TcpRank(int which, int count, const Secret& secret, const TcpOptions& options = {})
      : rank(which),
        mailbox(scheduler, count),
        transport(
            std::make_unique<TcpTransport>(scheduler, mailbox, which, count, secret, options)) {
    comm.id = 7;
  }

  FrameArena& frame_arena() { return arena; }

  void turn() {
    bool moved = transport->progress();
    moved |= scheduler.run_ready();
    idle = moved ? 0 : idle + 1;
    if (idle < 20) return;
    transport->look_at_links(monotonic_ns());
    if (transport->arm()) {
      pollfd entry{transport->descriptor(), POLLIN, 0};
      ::poll(&entry, 1, 20);
    }
    transport->disarm();
  }
  // Starts the tasks and drives until all have ended; false after too long.
  bool drive(std::vector<Task<Error>>& tasks, std::uint64_t allowed_ns = 60 * second) {
    const std::uint64_t deadline = monotonic_ns() + allowed_ns;
    for (Task<Error>& task : tasks) task.handle().resume();
    for (Task<Error>& task : tasks) {
      while (!task.done()) {
        if (monotonic_ns() > deadline) return false;
        turn();
      }
    }
    return true;
  }

  int rank;
  std::string address;
  FrameArena arena;
  Scheduler scheduler;
  Mailbox mailbox;
  std::unique_ptr<TcpTransport> transport;
  CommState comm;
  int idle = 0;
};

class SendTo {
 public:
  SendTo(TcpRank& me, CommState& comm, int to, std::uint32_t step, std::span<const std::byte> data)
      : me_(me) {
    send_.comm = &comm;
    send_.peer = to;
    send_.header.comm = comm.id;
    send_.header.step = step;
    send_.header.length = static_cast<std::uint32_t>(data.size());
    send_.data = data.data();
  }
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    send_.waiter = waiter;
    return !me_.transport->start(send_);
  }
  Error await_resume() { return send_.error; }

 private:
  TcpRank& me_;
  Send send_;
};

class RecvFrom {
 public:
  RecvFrom(TcpRank& me, CommState& comm, int from, std::uint32_t step, std::span<std::byte> into,
           Lease* lease = nullptr)
      : me_(me), lease_(lease) {
    receive_.comm = &comm;
    receive_.peer = from;
    receive_.tag = {comm.id, 0, step, 0};
    receive_.into = into.data();
    receive_.room = into.size();
    receive_.borrow = lease != nullptr;
  }
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    receive_.waiter = waiter;
    return !me_.mailbox.start(receive_);
  }
  Error await_resume() {
    if (receive_.error) return receive_.error;
    if (receive_.length != receive_.room) return Error(Code::internal, "another length");
    if (lease_) *lease_ = std::move(receive_.lease);
    return {};
  }

 private:
  TcpRank& me_;
  Receive receive_;
  Lease* lease_;
};

// Contents that tell sender, message and offset.
inline std::vector<std::byte> pattern(int from, std::uint32_t step, std::size_t bytes) {
  return contents(bytes, (static_cast<std::uint64_t>(from) << 32) + step);
}

using RankBody = std::function<std::string(TcpRank&, std::barrier<>&)>;

inline Secret secret_of_tcp_ranks() {
  Secret secret{};
  secret[0] = std::byte{42};
  return secret;
}

// Runs the body on every rank after connecting them; returns the first complaint.
// Ranks that are not `on_one_host` take each other for ranks of other hosts.
inline std::string run_tcp_ranks(int count, const RankBody& body, const TcpOptions& given = {},
                                 bool on_one_host = true) {
  const Secret secret = secret_of_tcp_ranks();
  std::vector<std::string> addresses(static_cast<std::size_t>(count));
  std::vector<std::string> complaints(static_cast<std::size_t>(count));
  const std::vector<std::uint8_t> use(static_cast<std::size_t>(count), 1);
  std::barrier barrier(count);
  auto run = [&](int rank) {
    auto& complaint = complaints[static_cast<std::size_t>(rank)];
    TcpOptions options = given;
    if (!on_one_host) options.host = "127.0.0." + std::to_string(1 + rank);
    TcpRank me(rank, count, secret, options);
    Expected<std::string> address = me.transport->listen();
    if (!address) complaint = address.error().message();
    addresses[static_cast<std::size_t>(rank)] = me.address = *address;
    barrier.arrive_and_wait();
    if (Error error = me.transport->connect(addresses, use, monotonic_ns() + 30 * second)) {
      complaint = error.message();
    }
    barrier.arrive_and_wait();
    if (complaint.empty()) complaint = body(me, barrier);
    barrier.arrive_and_drop();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return {};
}

}  // namespace pith::test
