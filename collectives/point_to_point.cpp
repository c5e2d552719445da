#include "collectives/point_to_point.hpp"

#include <fmt/format.h>

#include <vector>

#include "collectives/patterns.hpp"
#include "core/pair_message.hpp"

namespace pith {

namespace {

bool is_own(const Message& message, int rank, bool sends) {
  return message.peer == rank && message.sends == sends;
}

// The next message of a rank to itself from `at` on; the end where there is none.
std::size_t find_own(std::span<const Message> messages, std::size_t at, int rank, bool sends) {
  while (at < messages.size() && !is_own(messages[at], rank, sends)) ++at;
  return at;
}

// Even an empty message is one, so that a receive of nothing waits for its send.
std::uint32_t pieces_of(const Message& message, std::size_t chunk_bytes) {
  return static_cast<std::uint32_t>(
      std::max<std::size_t>(1, chunks_in(message.data.size, chunk_bytes)));
}

Task<Error> move_message(Call& call, Message message, std::size_t chunk_bytes) {
  Call own(call.context(), message.number, PairDigest{message.type, message.count}.encode());
  const int peer = call.place_of(message.peer);
  const std::uint32_t pieces = pieces_of(message, chunk_bytes);
  for (std::uint32_t k = 0; k < pieces; ++k) {
    const Range range = chunk_of({0, message.data.size}, chunk_bytes, k);
    const Bytes piece = message.data.part(range.begin, range.size);
    Error error;
    if (message.sends) {
      error = co_await own.send(peer, pair_lane, k, piece);
    } else {
      error = co_await own.recv(peer, pair_lane, k, piece);
    }
    if (error) co_return error;
  }
  co_return Error();
}

// Kernels reach pinned memory, but not what is the host's alone.
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
    Task<Error> staged = copy_apart(call, into.part(0, data.size), data, chunk_bytes);
    Error error = co_await std::move(staged);
    if (error) co_return error;
  }
  co_await call.until(copied);
  co_return Error();
}

}  // namespace

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

Task<Error> exchange_messages(Call& call, std::span<const Message> messages,
                              std::size_t chunk_bytes) {
  const int rank = call.callers_rank();
  if (messages.size() == 1 && messages[0].peer != rank) {
    Task<Error> alone = move_message(call, messages[0], chunk_bytes);
    co_return co_await std::move(alone);
  }
  std::vector<Task<Error>> strands;
  strands.reserve(messages.size() + 1);
  strands.push_back(copy_own(call, messages, rank, chunk_bytes));
  for (const Message& message : messages) {
    if (message.peer != rank) strands.push_back(move_message(call, message, chunk_bytes));
  }
  co_return co_await when_all(std::span(strands));
}

}  // namespace pith
