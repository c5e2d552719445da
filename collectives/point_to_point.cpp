#include "collectives/point_to_point.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "collectives/patterns.hpp"
#include "core/pair_message.hpp"

namespace pith {

namespace {

bool is_own(const Message& message, int rank, bool sends) {
  return message.peer == rank && message.sends == sends;
}

// The next message from or to the own rank, from `at` on; messages.size() if there is none.
std::size_t find_own(std::span<const Message> messages, std::size_t at, int rank, bool sends) {
  while (at < messages.size() && !is_own(messages[at], rank, sends)) ++at;
  return at;
}

// A message is cut into a head, which is all of a short one, and the rest, which begins with step
// 2. The head is step 0; if the window had no room for it, its announcement is step 0 and the head
// step 1.
constexpr std::uint32_t rest_step = 2;

struct Cut {
  Cut(const Message& message, std::size_t head_bytes, std::size_t chunk_bytes)
      : data(message.data),
        chunk(chunk_bytes),
        head(data.part(0, std::min({data.size, head_bytes, chunk_bytes}))) {}
  bool is_long() const { return head.size < data.size; }
  std::uint32_t pieces() const {
    return static_cast<std::uint32_t>(chunks_in(data.size - head.size, chunk));
  }
  Bytes piece(std::uint32_t k) const {
    const Range range = chunk_of({head.size, data.size - head.size}, chunk, k);
    return data.part(range.begin, range.size);
  }
  // The announcement is empty; of an empty message it is a byte, to tell it from the message.
  // (Empty messages are sent, so that a receive of nothing waits for its send.)
  Bytes announcement(std::byte& byte) const { return {&byte, head.size == 0 ? 1u : 0u}; }

  Bytes data;
  std::size_t chunk;
  Bytes head;
};

// Awaits until no earlier message to the peer waits for room.
class PairTurn {
 public:
  PairTurn(PairWindows& windows, const Message& message)
      : windows_(windows), peer_(message.peer), waiter_{message.number, {}, nullptr} {}
  bool await_ready() const { return !windows_.is_behind(peer_, waiter_.number); }
  void await_suspend(std::coroutine_handle<> handle) {
    waiter_.handle = handle;
    windows_.wait(peer_, waiter_);
  }
  void await_resume() const {}

 private:
  PairWindows& windows_;
  int peer_;
  PairWindows::Waiter waiter_;
};
static_assert(SafeAwaiter<PairTurn>);

// A message for which there is no room, from its announcement to its answer.
class Announced {
 public:
  Announced(PairWindows& windows, const Message& message, Scheduler& scheduler)
      : windows_(windows), peer_(message.peer), number_(message.number), scheduler_(scheduler) {
    windows.announced(peer_, number_);
  }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;
  ~Announced() { windows_.answered(peer_, number_, scheduler_); }

 private:
  PairWindows& windows_;
  int peer_;
  std::uint32_t number_;
  Scheduler& scheduler_;
};

Task<Error> send_message(Call& call, Message message, PairWindows& windows,
                         std::size_t chunk_bytes) {
  Call own(call.context(), message.number, PairDigest{message.type, message.count}.encode());
  Call word(call.context(), message.number, 0);
  const int peer = call.place_of(message.peer);
  const Cut cut(message, windows.head_bytes(), chunk_bytes);
  co_await PairTurn(windows, message);
  const bool at_once = windows.admit(message.peer, cut.head.size);
  std::optional<Announced> announced;
  if (at_once) {
    windows.wake_next(message.peer, call.scheduler());
  } else {
    announced.emplace(windows, message, call.scheduler());
  }
  std::byte byte{};
  const Bytes first = at_once ? cut.head : cut.announcement(byte);
  Error error = co_await own.send(peer, pair_lane, 0, first);
  if (error) co_return error;
  if (!at_once || cut.is_long()) {
    std::uint64_t taken = 0;
    const Bytes into{reinterpret_cast<std::byte*>(&taken), sizeof taken};
    error = co_await word.recv(peer, pair_lane, receiving_step, into);
    if (error) co_return error;
    windows.acknowledge(message.peer, taken);
    announced.reset();
  }
  if (!at_once) {
    error = co_await own.send(peer, pair_lane, 1, cut.head);
    if (error) co_return error;
  }
  for (std::uint32_t k = 0; k < cut.pieces(); ++k) {
    error = co_await own.send(peer, pair_lane, rest_step + k, cut.piece(k));
    if (error) co_return error;
  }
  co_return error;
}

// Receives the head or announcement of a long message and tells the sender that the receive has
// been called, both at once, since either may wait for the other. An error of the receive goes
// before one of the send. Awaits to the number of bytes received.
class RecvFirstAwaiter {
 public:
  RecvFirstAwaiter(const Call& own, const Call& word, int from, Bytes into, Bytes taken)
      : recv_(own, from, pair_lane, 0, into),
        send_(word, from, pair_lane, receiving_step, taken, {}) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    return start_both(recv_, send_, remaining_, waiter);
  }
  Expected<std::size_t> await_resume() {
    Error received = recv_.result();
    Error sent = send_.result();
    if (received) return received;
    if (sent) return sent;
    return recv_.length();
  }

 private:
  RecvStage recv_;
  SendStage send_;
  int remaining_ = 0;
};
static_assert(SafeAwaiter<RecvFirstAwaiter>);

Error another_cut(Call& call, int peer, std::size_t came, std::size_t expected) {
  return call.fail(Error(
      Code::invalid_usage,
      fmt::format("rank {} sent {} bytes where {} were expected", peer, came, expected), peer));
}

Task<Error> receive_message(Call& call, Message message, PairWindows& windows,
                            std::size_t chunk_bytes) {
  Call own(call.context(), message.number, PairDigest{message.type, message.count}.encode());
  Call word(call.context(), message.number, 0);
  const int peer = call.place_of(message.peer);
  const Cut cut(message, windows.head_bytes(), chunk_bytes);
  std::byte byte{};
  std::uint64_t taken = windows.taken(message.peer);
  const Bytes told{reinterpret_cast<std::byte*>(&taken), sizeof taken};
  const Bytes announcement = cut.announcement(byte);
  const Bytes into = announcement.size > cut.head.size ? announcement : cut.head;
  std::size_t came = 0;
  if (cut.is_long()) {
    const Expected<std::size_t> first = co_await RecvFirstAwaiter(own, word, peer, into, told);
    if (!first) co_return first.error();
    came = *first;
  } else {
    const Expected<std::size_t> first = co_await own.recv_some(peer, pair_lane, 0, into);
    if (!first) co_return first.error();
    came = *first;
  }
  Error error;
  if (came == cut.head.size) {
    windows.take(message.peer, cut.head.size);
  } else if (came != announcement.size) {
    co_return another_cut(own, message.peer, came, cut.head.size);
  } else {
    if (!cut.is_long()) {
      taken = windows.taken(message.peer);
      error = co_await word.send(peer, pair_lane, receiving_step, told);
      if (error) co_return error;
    }
    error = co_await own.recv(peer, pair_lane, 1, cut.head);
    if (error) co_return error;
  }
  for (std::uint32_t k = 0; k < cut.pieces(); ++k) {
    error = co_await own.recv(peer, pair_lane, rest_step + k, cut.piece(k));
    if (error) co_return error;
  }
  co_return error;
}

Task<Error> move_message(Call& call, const Message& message, PairWindows& windows,
                         std::size_t chunk_bytes) {
  return message.sends ? send_message(call, message, windows, chunk_bytes)
                       : receive_message(call, message, windows, chunk_bytes);
}

// Copies between host and device by way of pinned memory, since kernels reach no other host memory.
Task<Error> copy_apart(Call& call, Bytes to, Bytes from, std::size_t chunk_bytes) {
  const Scratch room(call.host_compute(), std::min(from.size, chunk_bytes));
  for (std::size_t k = 0; k < chunks_in(from.size, chunk_bytes); ++k) {
    const Range range = chunk_of({0, from.size}, chunk_bytes, k);
    const Bytes out = to.part(range.begin, range.size);
    const Bytes in = from.part(range.begin, range.size);
    std::byte* const between = room.bytes().data;
    if (in.kind == MemoryKind::host) {
      call.host_compute().run<CopyKernel>({between, in.data, in.size});
      co_await call.until(call.run<CopyKernel>({out.data, between, out.size}));
    } else {
      co_await call.until(call.run<CopyKernel>({between, in.data, in.size}));
      call.host_compute().run<CopyKernel>({out.data, between, out.size});
    }
  }
  co_return Error();
}

Task<Error> copy_own(Call& call, std::span<const Message> messages, int rank,
                     std::size_t chunk_bytes) {
  Fence copied;
  std::size_t to = 0;
  for (std::size_t from = 0;; ++from, ++to) {
    from = find_own(messages, from, rank, true);
    to = find_own(messages, to, rank, false);
    if (from == messages.size()) break;
    const Bytes data = messages[from].data;
    const Bytes into = messages[to].data;
    if (data.size == 0 || data.data == into.data) continue;
    if (data.kind == into.kind) {
      copied = call.run<CopyKernel>({into.data, data.data, data.size});
      continue;
    }
    Error error = co_await copy_apart(call, into.part(0, data.size), data, chunk_bytes);
    if (error) co_return error;
  }
  co_await call.until(copied);
  co_return Error();
}

}  // namespace

std::size_t bytes_before(std::uint32_t step, std::size_t head_bytes, std::size_t chunk_bytes) {
  if (step < rest_step || step == receiving_step) return 0;
  return std::min(head_bytes, chunk_bytes) + (step - rest_step) * chunk_bytes;
}

Error check_own(std::span<const Message> messages, int rank) {
  std::size_t to = 0;
  for (std::size_t from = 0;; ++from, ++to) {
    from = find_own(messages, from, rank, true);
    to = find_own(messages, to, rank, false);
    const bool sends = from < messages.size();
    const bool receives = to < messages.size();
    if (!sends && !receives) return {};
    if (sends != receives) {
      return {Code::invalid_usage,
              fmt::format("rank {} {} itself, expected a matching pith{} in the same group and on "
                          "the same stream",
                          rank, sends ? "sends to" : "receives from", sends ? "Recv" : "Send")};
    }
    const Message& sent = messages[from];
    const Message& expected = messages[to];
    if (sent.count == expected.count && sent.type == expected.type) continue;
    return {
        Code::invalid_usage,
        fmt::format("rank {} sends {} elements of type {} to itself where {} of type {} are to "
                    "be received",
                    rank, sent.count, name_of(sent.type), expected.count, name_of(expected.type))};
  }
}

Task<Error> exchange_messages(Call& call, std::span<const Message> messages, PairWindows& windows,
                              std::size_t chunk_bytes) {
  const int rank = call.callers_rank();
  if (messages.size() == 1 && messages[0].peer != rank) {
    co_return co_await move_message(call, messages[0], windows, chunk_bytes);
  }
  std::vector<Task<Error>> strands;
  strands.reserve(messages.size() + 1);
  strands.push_back(copy_own(call, messages, rank, chunk_bytes));
  for (const Message& message : messages) {
    if (message.peer == rank) continue;
    strands.push_back(move_message(call, message, windows, chunk_bytes));
  }
  co_return co_await when_all(std::span(strands));
}

}  // namespace pith
