#include "collectives/list_message.hpp"

#include <cstring>

#include "collectives/index_message.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

constexpr std::string_view unreadable = "a list that cannot be read";

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
  static constexpr std::size_t last = ~std::size_t{0};

  Range range;
  PairList* into;
  std::size_t run = last;  // number; last: behind those that are there
};

bool read_indices(Call& call, std::span<Target> targets, ConstBytes bytes, ListHead& head) {
  IndexReader reader(call, bytes);
  if (!reader.get_value(head)) return false;
  if (head.count > reader.most()) return false;
  std::size_t left = head.count;
  for (Target& target : targets) {
    PairList& into = *target.into;
    if (reader.replaces()) into.begin(into.type());
    if (target.run == Target::last) target.run = into.runs();
    const std::size_t room = std::min(left, target.range.size);
    into.reserve(room);
    const Decoded list = reader.get(target.range, into.indices(into.count()), room);
    if (!list.valid) return false;
    into.end_run(list.count, target.run);
    left -= list.count;
  }
  return left == 0 && reader.done();
}

void read_values(std::span<const Target> targets, const std::byte* values) {
  for (const Target& target : targets) {
    PairList& into = *target.into;
    const std::size_t bytes = into.run(target.run).count * size_of(into.type());
    if (bytes > 0) std::memcpy(into.run_values(target.run), values, bytes);
    values += bytes;
  }
}

std::uint16_t values_lane(ListAddress address) {
  return static_cast<std::uint16_t>(address.lane + 1);
}

}  // namespace

ListMessage write_lists(Call& call, const SparseCall& args, Parcel parcel, std::uint32_t flags) {
  return write(call, args.spec().values, flags, [&](auto put) {
    for_each_piece(parcel.pieces, [&](const Piece& piece) {
      const PairList& list = args.tensors[piece.tensor].compressor->taken();
      put(piece.range, list.run(list.runs() - 1), parcel.is_tail && list.runs() == 1);
    });
  });
}

ListMessage write_list(Call& call, const SparseList& list, Range range, DType type,
                       std::uint32_t flags) {
  return write(call, type, flags, [&](auto put) { put(range, list, true); });
}

Task<Error> send_lists(Call& call, ListAddress to, const ListMessage& message) {
  Error error = co_await call.send(to.peer, to.lane, to.step,
                                   message.head.bytes().part(0, message.head_bytes));
  if (error || message.values_bytes == 0) co_return error;
  co_return co_await call.send(to.peer, values_lane(to), to.step,
                               message.values.bytes().part(0, message.values_bytes));
}

Task<Error> send_lists_to_all(Call& call, ListAddress name, const ListMessage& message) {
  return with_every_other(call, [&call, &message, name](int distance) {
    const int to = wrap(call.rank() + distance, call.size());
    return send_lists(call, {to, name.lane, name.step}, message);
  });
}

Task<Error> fetch_lists(Call& call, const SparseCall& args, Parcel parcel, ListAddress from,
                        std::size_t most, ListMessage& message) {
  std::size_t room = sizeof(ListHead);
  for_each_piece(parcel.pieces,
                 [&](const Piece& piece) { room += index_bytes(most, piece.range.size); });
  message.head = Scratch(call.host_compute(), room);
  const Expected<std::size_t> came =
      co_await call.recv_some(from.peer, from.lane, from.step, message.head.bytes());
  if (!came) co_return came.error();
  message.head_bytes = *came;
  ListHead head;
  IndexReader reader(call, {message.head.bytes().data, *came});
  if (!reader.get_value(head) || head.count > most || head.count > reader.most()) {
    co_return malformed(call, from.peer, unreadable);
  }
  message.values_bytes = head.count * size_of(args.spec().values);
  args.traffic->received += message.head_bytes + message.values_bytes;
  if (head.count == 0) co_return Error();

  message.values = Scratch(call.host_compute(), message.values_bytes);
  co_return co_await call.recv(from.peer, values_lane(from), from.step,
                               message.values.bytes().part(0, message.values_bytes));
}

Error read_lists(Call& call, const SparseCall& args, Parcel parcel, const ListMessage& message,
                 int origin, int from, ListHead& head) {
  std::size_t n = 0;
  for_each_piece(parcel.pieces, [&](const Piece&) { ++n; });
  const Scratch memory(call.host_compute(), n * sizeof(Target));
  const std::span<Target> targets{reinterpret_cast<Target*>(memory.bytes().data), n};
  n = 0;
  for_each_piece(parcel.pieces, [&](const Piece& piece) {
    Compressor& compressor = *args.tensors[piece.tensor].compressor;
    auto& received = compressor.received(static_cast<std::size_t>(call.size()));
    targets[n++] = {piece.range, &received[static_cast<std::size_t>(origin)],
                    parcel.is_tail ? Target::last : piece.number};
  });
  const ConstBytes bytes{message.head.bytes().data, message.head_bytes};
  if (!read_indices(call, targets, bytes, head)) return malformed(call, from, unreadable);
  read_values(targets, message.values.bytes().data);
  return {};
}

Task<Error> receive_list(Call& call, ListAddress from, Range range, PairList& into,
                         std::uint32_t& flags, Traffic& traffic) {
  const Scratch coded(call.host_compute(), sizeof(ListHead) + index_bytes(range.size, range.size));
  const Expected<std::size_t> came =
      co_await call.recv_some(from.peer, from.lane, from.step, coded.bytes());
  if (!came) co_return came.error();
  Target target{range, &into};
  ListHead head;
  const ConstBytes bytes{coded.bytes().data, *came};
  if (!read_indices(call, std::span(&target, 1), bytes, head)) {
    co_return malformed(call, from.peer, unreadable);
  }
  flags |= head.flags;
  const std::size_t values_bytes = head.count * size_of(into.type());
  traffic.received += *came + values_bytes;
  if (head.count == 0) co_return Error();
  co_return co_await call.recv(from.peer, values_lane(from), from.step,
                               {into.run_values(target.run), values_bytes});
}

}  // namespace pith
