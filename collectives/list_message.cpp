#include "collectives/list_message.hpp"

#include <fmt/format.h>

#include <cstring>

#include "collectives/index_message.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

Error malformed(Call& call, int from) {
  return call.fail(
      Error(Code::internal, fmt::format("rank {} sent a list that cannot be read", from), from));
}

// each(put) calls put(range, list, replaces) for every list of the message.
template <class Each>
ListMessage write(Call& call, DType type, std::uint32_t flags, Each each) {
  ListHead head;
  head.flags = flags;
  std::size_t room = sizeof head;
  each([&](Range range, const SparseList& list, bool) {
    head.count += static_cast<std::uint32_t>(list.count);
    room += index_bytes(list.count, range.size);
  });
  ListMessage message;
  message.head = Scratch(call.compute(), room);
  message.values_bytes = head.count * size_of(type);
  if (message.values_bytes > 0) message.values = Scratch(call.compute(), message.values_bytes);
  IndexWriter writer(call, message.head.bytes().data);
  writer.put_value(head);
  std::byte* values = message.values.bytes().data;
  each([&](Range range, const SparseList& list, bool replaces) {
    writer.put(range, list, replaces);
    const std::size_t bytes = list.count * size_of(type);
    if (bytes == 0) return;
    call.run<CopyKernel>({values, list.values, bytes});
    values += bytes;
  });
  message.head_bytes = writer.size();
  return message;
}

// Where the next list of a message goes: the range it lies in, and what it becomes a run of.
struct Target {
  Range range;
  PairList* into;
};

bool read_indices(Call& call, std::span<const Target> targets, ConstBytes bytes, std::size_t most,
                  ListHead& head) {
  IndexReader reader(call, bytes);
  if (!reader.get_value(head)) return false;
  if (head.count > most || head.count > reader.most()) return false;
  std::size_t left = head.count;
  for (const Target& target : targets) {
    PairList& into = *target.into;
    if (reader.replaces()) into.begin(into.type());
    const std::size_t room = std::min(left, target.range.size);
    into.reserve(room);
    const Decoded list = reader.get(target.range, into.indices(into.count()), room);
    if (!list.valid) return false;
    into.end_run(list.count);
    left -= list.count;
  }
  return left == 0 && reader.done();
}

void read_values(std::span<const Target> targets, const std::byte* values) {
  for (const Target& target : targets) {
    PairList& into = *target.into;
    const std::size_t count = into.run(into.runs() - 1).count;
    const std::size_t bytes = count * size_of(into.type());
    if (bytes > 0) std::memcpy(into.values(into.count() - count), values, bytes);
    values += bytes;
  }
}

// At most `most` pairs are accepted.
Task<Error> receive(Call& call, ListAddress from, std::span<const Target> targets, std::size_t most,
                    ListHead& head, Traffic& traffic) {
  std::size_t room = sizeof head;
  for (const Target& target : targets) room += index_bytes(most, target.range.size);
  const Scratch coded(call.host_compute(), room);
  const Expected<std::size_t> came =
      co_await call.recv_some(from.peer, from.lane, from.step, coded.bytes());
  if (!came) co_return came.error();
  const ConstBytes bytes{coded.bytes().data, *came};
  if (!read_indices(call, targets, bytes, most, head)) co_return malformed(call, from.peer);
  traffic.received += *came;
  if (head.count == 0) co_return Error();

  const auto values_lane = static_cast<std::uint16_t>(from.lane + 1);
  PairList& first = *targets[0].into;
  const std::size_t values_bytes = head.count * size_of(first.type());
  traffic.received += values_bytes;
  if (targets.size() == 1) {
    const Bytes values{first.values(first.count() - head.count), values_bytes};
    co_return co_await call.recv(from.peer, values_lane, from.step, values);
  }
  const Scratch values(call.host_compute(), values_bytes);
  Error error =
      co_await call.recv(from.peer, values_lane, from.step, values.bytes().part(0, values_bytes));
  if (!error) read_values(targets, values.bytes().data);
  co_return error;
}

}  // namespace

ListMessage write_lists(Call& call, const SparseCall& args, Pieces pieces, std::uint32_t flags) {
  const auto each = [&](auto put) {
    for_each_piece(pieces, [&](const Piece& piece) {
      const PairList& list = args.tensors[piece.tensor].compressor->taken();
      put(piece.range, list.run(list.runs() - 1), list.runs() == 1);
    });
  };
  ListMessage message = write(call, args.spec().values, flags, each);
  args.traffic->sent +=
      static_cast<std::uint64_t>(call.size() - 1) * (message.head_bytes + message.values_bytes);
  return message;
}

ListMessage write_list(Call& call, const SparseList& list, Range range, DType type,
                       std::uint32_t flags) {
  return write(call, type, flags, [&](auto put) { put(range, list, true); });
}

Task<Error> send_lists(Call& call, ListAddress to, const ListMessage& message) {
  Error error = co_await call.send(to.peer, to.lane, to.step,
                                   message.head.bytes().part(0, message.head_bytes));
  if (error || message.values_bytes == 0) co_return error;
  const auto values_lane = static_cast<std::uint16_t>(to.lane + 1);
  co_return co_await call.send(to.peer, values_lane, to.step,
                               message.values.bytes().part(0, message.values_bytes));
}

Task<Error> send_lists_to_all(Call& call, ListAddress name, const ListMessage& message) {
  return with_every_other(call, [&call, &message, name](int distance) {
    const int to = wrap(call.rank() + distance, call.size());
    return send_lists(call, {to, name.lane, name.step}, message);
  });
}

Task<Error> receive_lists(Call& call, const SparseCall& args, Pieces pieces, ListAddress from,
                          std::size_t origin, std::size_t most, ListHead& head) {
  std::size_t n = 0;
  for_each_piece(pieces, [&](const Piece&) { ++n; });
  const Scratch memory(call.host_compute(), n * sizeof(Target));
  auto* targets = reinterpret_cast<Target*>(memory.bytes().data);
  n = 0;
  for_each_piece(pieces, [&](const Piece& piece) {
    Compressor& compressor = *args.tensors[piece.tensor].compressor;
    auto& received = compressor.received(static_cast<std::size_t>(call.size()));
    targets[n++] = {piece.range, &received[origin]};
  });
  co_return co_await receive(call, from, {targets, n}, most, head, *args.traffic);
}

Task<Error> receive_list(Call& call, ListAddress from, Range range, PairList& into,
                         std::uint32_t& flags, Traffic& traffic) {
  const Target target{range, &into};
  ListHead head;
  Error error = co_await receive(call, from, std::span(&target, 1), range.size, head, traffic);
  flags |= head.flags;
  co_return error;
}

}  // namespace pith
