#include "collectives/list_message.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace pith {

namespace {

constexpr std::size_t most_in_flight = 16;
// In front of each piece's coding: whether this tail replaces all other runs of its tensor.
constexpr std::byte only_run{1};
constexpr std::byte further_run{0};

Error malformed(Call& call, int from) {
  return call.fail(
      Error(Code::internal, fmt::format("rank {} sent a list that cannot be read", from), from));
}

// What came is parted into the lists of its pieces.
struct Reader {
  const SparseCall& args;
  std::size_t origin;
  Call& call;
  const Parcel& parcel;

  PairList& list(const Piece& piece) const {
    Compressor& compressor = *args.tensors[piece.tensor].compressor;
    return compressor.received(static_cast<std::size_t>(call.size()))[origin];
  }
  bool read_indices(ConstBytes coded, std::size_t count) const {
    bool good = true;
    for_each_piece(parcel.pieces, [&](const Piece& piece) {
      if (!good) return;
      PairList& into = list(piece);
      if (coded.size == 0) return void(good = false);
      if (coded.data[0] == only_run) into.begin(into.type());
      coded = {coded.data + 1, coded.size - 1};
      const std::size_t room = std::min(count, piece.range.size);
      into.reserve(room);
      Decoded decoded;
      call.run<DecodeIndicesKernel>({coded.data, coded.size,
                                     static_cast<std::uint32_t>(piece.range.begin),
                                     piece.range.size, into.indices(into.count()), room, &decoded});
      good = decoded.valid;
      if (!good) return;
      into.end_run(decoded.count, parcel.is_tail ? into.runs() : piece.number);
      count -= decoded.count;
      coded = {coded.data + decoded.bytes, coded.size - decoded.bytes};
    });
    return good && count == 0 && coded.size == 0;
  }
  void read_values(const std::byte* values) const {
    for_each_piece(parcel.pieces, [&](const Piece& piece) {
      PairList& into = list(piece);
      const SparseList run = into.run(parcel.is_tail ? into.runs() - 1 : piece.number);
      const std::size_t bytes = run.count * size_of(into.type());
      if (bytes > 0) std::memcpy(into.values(into.count() - run.count), values, bytes);
      values += bytes;
    });
  }
};

}  // namespace

ListMessage write_lists(Call& call, const SparseCall& args, Parcel parcel, ListHead head) {
  const auto last_run = [&](const Piece& piece) {
    const PairList& list = args.tensors[piece.tensor].compressor->taken();
    return list.run(list.runs() - 1);
  };
  const std::size_t value_bytes = size_of(args.spec().values);
  ListMessage message;
  std::size_t bound = sizeof(ListHead);
  for_each_piece(parcel.pieces, [&](const Piece& piece) {
    const std::size_t count = last_run(piece).count;
    head.count += static_cast<std::uint32_t>(count);
    bound += 1 + EncodeIndicesKernel::coded_bound(count, piece.range.size);
  });
  message.head = Scratch(call.compute(), bound);
  message.values_bytes = head.count * value_bytes;
  if (message.values_bytes > 0) message.values = Scratch(call.compute(), message.values_bytes);
  std::byte* out = message.head.bytes().data;
  std::memcpy(out, &head, sizeof head);
  message.head_bytes = sizeof head;
  std::byte* values = message.values.bytes().data;
  for_each_piece(parcel.pieces, [&](const Piece& piece) {
    const SparseList list = last_run(piece);
    const bool only = args.tensors[piece.tensor].compressor->taken().runs() == 1;
    out[message.head_bytes++] = parcel.is_tail && only ? only_run : further_run;
    std::size_t written = 0;
    call.run<EncodeIndicesKernel>({list.indices, list.count,
                                   static_cast<std::uint32_t>(piece.range.begin), piece.range.size,
                                   out + message.head_bytes, &written});
    message.head_bytes += written;
    const std::size_t bytes = list.count * value_bytes;
    if (bytes == 0) return;
    call.run<CopyKernel>({values, list.values, bytes});
    values += bytes;
  });
  return message;
}

ListMessage write_list(Call& call, const SparseList& list, Range range, DType type,
                       std::uint32_t flags) {
  ListMessage message;
  ListHead head;
  head.flags = flags;
  head.count = static_cast<std::uint32_t>(list.count);
  const std::size_t bound = EncodeIndicesKernel::coded_bound(list.count, range.size);
  message.head = Scratch(call.compute(), sizeof head + bound);
  std::memcpy(message.head.bytes().data, &head, sizeof head);
  std::size_t written = 0;
  call.run<EncodeIndicesKernel>({list.indices, list.count, static_cast<std::uint32_t>(range.begin),
                                 range.size, message.head.bytes().data + sizeof head, &written});
  message.head_bytes = sizeof head + written;
  message.values_bytes = list.count * size_of(type);
  if (list.count == 0) return message;
  message.values = Scratch(call.compute(), message.values_bytes);
  call.run<CopyKernel>({message.values.bytes().data, list.values, message.values_bytes});
  return message;
}

Task<Error> receive_list(Call& call, ListAddress from, Range range, PairList& into,
                         std::uint32_t& flags, Traffic& traffic) {
  const std::size_t bound = EncodeIndicesKernel::coded_bound(range.size, range.size);
  const Scratch coded(call.host_compute(), sizeof(ListHead) + bound);
  const Expected<std::size_t> came =
      co_await call.recv_some(from.peer, from.lane, from.step, coded.bytes());
  if (!came) co_return came.error();
  ListHead head;
  if (*came < sizeof head) co_return malformed(call, from.peer);
  std::memcpy(&head, coded.bytes().data, sizeof head);
  if (head.count > range.size) co_return malformed(call, from.peer);
  flags |= head.flags;
  into.reserve(head.count);
  const std::size_t at = into.count();
  Decoded decoded;
  call.run<DecodeIndicesKernel>({coded.bytes().data + sizeof head, *came - sizeof head,
                                 static_cast<std::uint32_t>(range.begin), range.size,
                                 into.indices(at), head.count, &decoded});
  if (!decoded.valid || decoded.count != head.count || decoded.bytes != *came - sizeof head) {
    co_return malformed(call, from.peer);
  }
  const std::size_t bytes = head.count * size_of(into.type());
  traffic.received += *came + bytes;
  into.end_run(head.count);
  if (bytes == 0) co_return Error();
  const auto values_lane = static_cast<std::uint16_t>(from.lane + 1);
  co_return co_await call.recv(from.peer, values_lane, from.step, {into.values(at), bytes});
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
  std::array<Task<Error>, most_in_flight> sends;
  const auto others = static_cast<std::size_t>(call.size() - 1);
  for (std::size_t first = 0; first < others; first += most_in_flight) {
    const std::size_t batch = std::min(most_in_flight, others - first);
    for (std::size_t i = 0; i < batch; ++i) {
      name.peer = wrap(call.rank() + 1 + static_cast<int>(first + i), call.size());
      sends[i] = send_lists(call, name, message);
    }
    Error error = co_await when_all(std::span(sends).first(batch));
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> fetch_lists(Call& call, const SparseCall& args, Parcel parcel, ListAddress from,
                        std::size_t most, ListMessage& message) {
  std::size_t room = sizeof(ListHead);
  for_each_piece(parcel.pieces, [&](const Piece& piece) {
    room += 1 + EncodeIndicesKernel::coded_bound(most, piece.range.size);
  });
  message.head = Scratch(call.host_compute(), room);
  const Expected<std::size_t> came =
      co_await call.recv_some(from.peer, from.lane, from.step, message.head.bytes());
  if (!came) co_return came.error();
  message.head_bytes = *came;
  args.traffic->received += *came;
  ListHead head;
  if (*came < sizeof head) co_return malformed(call, from.peer);
  std::memcpy(&head, message.head.bytes().data, sizeof head);
  if (head.count > most) co_return malformed(call, from.peer);
  message.values_bytes = head.count * size_of(args.spec().values);
  if (head.count == 0) co_return Error();

  message.values = Scratch(call.host_compute(), message.values_bytes);
  args.traffic->received += message.values_bytes;
  const auto values_lane = static_cast<std::uint16_t>(from.lane + 1);
  co_return co_await call.recv(from.peer, values_lane, from.step,
                               message.values.bytes().part(0, message.values_bytes));
}

Error read_lists(Call& call, const SparseCall& args, Parcel parcel, const ListMessage& message,
                 int origin, int from, ListHead& head) {
  std::memcpy(&head, message.head.bytes().data, sizeof head);
  const Reader reader{args, static_cast<std::size_t>(origin), call, parcel};
  const ConstBytes indices{message.head.bytes().data + sizeof head,
                           message.head_bytes - sizeof head};
  if (!reader.read_indices(indices, head.count)) return malformed(call, from);
  reader.read_values(message.values.bytes().data);
  return {};
}

}  // namespace pith
