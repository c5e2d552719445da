#include "collectives/lists/list_message.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "collectives/lists/index_message.hpp"
#include "collectives/strands.hpp"
#include "compress/scheme.hpp"

namespace pith {

namespace {

constexpr std::string_view unreadable = "a list that cannot be read";

// How a list's values travel: in their type, or coded in blocks of their own where that is shorter.
struct ValuesFormat {
  DType type = DType::f32;
  std::optional<Coding> coding = {};  // of float32

  static ValuesFormat of(const Spec& spec) { return {spec.values, list_coding_of(spec)}; }
  bool codes(std::size_t count) const {
    return coding && coding->bytes(count) < count * size_of(type);
  }
  std::size_t bytes(std::size_t count) const {
    return codes(count) ? coding->bytes(count) : count * size_of(type);
  }
  // Of so many pairs in so many lists.
  std::size_t most_bytes(std::size_t count, std::size_t lists) const {
    if (!coding) return count * size_of(type);
    return coding->bytes(count) + lists * (coding->scale_bytes() + Coding::granule);
  }
};

Fence write_values(Call& call, const ValuesFormat& format, const SparseList& list, std::byte* out) {
  if (!format.codes(list.count)) {
    return call.run<CopyKernel>({out, list.values, list.count * size_of(format.type)});
  }
  const auto* const in = reinterpret_cast<const float*>(list.values);
  return call.run<EncodeValuesKernel>({*format.coding, {}, in, list.count, out});
}

// each(put) calls put(range, list, replaces) for every list of the message.
template <class Each>
ListMessage write(Call& call, const ValuesFormat& format, std::uint32_t flags, Each each) {
  ListMessage message;
  message.says.flags = flags;
  std::size_t room = sizeof message.says;
  each([&](Range range, const SparseList& list, bool) {
    message.says.count += static_cast<std::uint32_t>(list.count);
    message.values_bytes += format.bytes(list.count);
    room += index_bytes(list.count, range.size);
  });
  message.head = Scratch(call.compute(), room);
  if (message.values_bytes > 0) message.values = Scratch(call.compute(), message.values_bytes);
  IndexWriter writer(call, message.head.bytes().data);
  writer.put_value(message.says);
  std::byte* values = message.values.bytes().data;
  each([&](Range range, const SparseList& list, bool replaces) {
    writer.put(range, list, replaces);
    message.ready = writer.ready();
    if (list.count == 0) return;
    message.ready = write_values(call, format, list, values);
    values += format.bytes(list.count);
  });
  message.head_bytes = writer.size();
  return message;
}

// Reads the head of a message. False: it is malformed.
bool read_head(IndexReader& reader, ListHead& head) {
  return reader.get_value(head) && head.count <= reader.most();
}

// Where a list of a message goes: the range it lies in, and the run of `into` that it becomes.
struct Target {
  Range range;
  PairList* into;
  std::size_t run;
  std::byte* replaced = nullptr;  // set to 1 if the list replaces earlier ones; may be null
};

// Reads the lists behind a head that claims `count` pairs. Several lists are decoded into scratch
// first: decoded in place, each would have to reserve room for all pairs that are left.
bool read_indices(Call& call, IndexReader& reader, std::size_t count,
                  std::span<const Target> targets) {
  Scratch elsewhere;
  if (targets.size() > 1) {
    elsewhere =
        Scratch(call.host_compute(), std::max<std::size_t>(count, 1) * sizeof(std::uint32_t));
  }
  auto* const decoded = reinterpret_cast<std::uint32_t*>(elsewhere.bytes().data);
  std::size_t left = count;
  for (const Target& target : targets) {
    PairList& into = *target.into;
    if (target.replaced && reader.replaces()) *target.replaced = std::byte{1};
    const std::size_t room = std::min(left, target.range.size);
    if (!decoded) into.reserve(room);
    std::uint32_t* const out = decoded ? decoded : into.indices(into.count());
    const Decoded list = reader.get(target.range, out, room);
    if (!list.valid) return false;
    if (decoded) {
      into.reserve(list.count);
      std::copy_n(decoded, list.count, into.indices(into.count()));
    }
    into.end_run(list.count, target.run);
    left -= list.count;
  }
  return left == 0 && reader.done();
}

// False: there are more or fewer bytes than the lists have.
bool read_values(Call& call, const ValuesFormat& format, std::span<const Target> targets,
                 ConstBytes values) {
  for (const Target& target : targets) {
    PairList& into = *target.into;
    const std::size_t count = into.run(target.run).count;
    const std::size_t bytes = format.bytes(count);
    if (bytes > values.size) return false;
    std::byte* const out = into.run_values(target.run);
    if (format.codes(count)) {
      call.host_compute().run<DecodeValuesKernel>(
          {*format.coding, values.data, count, out, format.type, 1});
    } else if (bytes > 0) {
      std::memcpy(out, values.data, bytes);
    }
    values = {values.data + bytes, values.size - bytes};
  }
  return values.size == 0;
}

std::uint16_t values_lane(ListAddress address) {
  return static_cast<std::uint16_t>(address.lane + 1);
}

}  // namespace

ListMessage write_lists(Call& call, const SparseCall& args, const Round& round,
                        std::uint32_t flags) {
  return write(call, ValuesFormat::of(args.spec()), flags, [&](auto put) {
    for_each_piece(round.lists, [&](const Piece& piece) {
      const PairList& taken = args.tensors[piece.tensor].compressor->taken();
      put(piece.range, taken.part(taken.runs() - 1, piece.range.begin, piece.range.size),
          round.tail && taken.runs() == 1);
    });
  });
}

ListMessage write_slices(Call& call, std::span<const ListVector> vectors, Range range, DType type,
                         std::uint32_t flags) {
  return write(call, {type}, flags, [&](auto put) {
    for_each_slice(vectors, range, [&](const ListVector& vector, Range slice) {
      put(slice, part_of(vector.list, type, slice.begin, slice.size), false);
    });
  });
}

Task<Error> send_lists(Call& call, ListAddress to, const ListMessage& message) {
  Error error = co_await call.send(to.peer, to.lane, to.step,
                                   message.head.bytes().part(0, message.head_bytes), message.ready);
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

namespace {

// Only who has decoded the indices knows how many bytes coded values have.
Task<Error> fetch_values(Call& call, const SparseCall& args, const Round& round, ListAddress from,
                         ListMessage& message) {
  std::size_t lists = 0;
  for_each_piece(round.lists, [&](const Piece&) { ++lists; });
  const ValuesFormat format = ValuesFormat::of(args.spec());
  const std::size_t most = format.most_bytes(message.says.count, lists);
  message.values = Scratch(call.host_compute(), most);
  if (!format.coding) {
    message.values_bytes = most;
    co_return co_await call.recv(from.peer, values_lane(from), from.step, message.values.bytes());
  }
  const Expected<std::size_t> came =
      co_await call.recv_some(from.peer, values_lane(from), from.step, message.values.bytes());
  if (!came) co_return came.error();
  message.values_bytes = *came;
  co_return Error();
}

}  // namespace

Task<Error> fetch_lists(Call& call, const SparseCall& args, const Round& round, ListAddress from,
                        std::size_t most, ListMessage& message) {
  const std::size_t room = sizeof message.says + most_index_bytes(round.lists, most);
  message.head = Scratch(call.host_compute(), room);
  const Expected<std::size_t> came =
      co_await call.recv_some(from.peer, from.lane, from.step, message.head.bytes());
  if (!came) co_return came.error();
  message.head_bytes = *came;
  IndexReader reader(call, {message.head.bytes().data, *came});
  if (!read_head(reader, message.says) || message.says.count > most) {
    co_return malformed(call, from.peer, unreadable);
  }
  message.values_bytes = 0;  // the message may have been another one before
  if (message.says.count == 0) {
    args.traffic->received += message.bytes();
    co_return Error();
  }
  Error error = co_await fetch_values(call, args, round, from, message);
  args.traffic->received += message.bytes();
  co_return error;
}

Error read_lists(Call& call, const SparseCall& args, const Round& round, const ListMessage& message,
                 int origin, int from, std::byte* replaced) {
  std::size_t n = 0;
  for_each_piece(round.lists, [&](const Piece&) { ++n; });
  const Scratch memory(call.host_compute(), n * sizeof(Target));
  const std::span<Target> targets{reinterpret_cast<Target*>(memory.bytes().data), n};
  n = 0;
  for_each_piece(round.lists, [&](const Piece& piece) {
    Compressor& compressor = *args.tensors[piece.tensor].compressor;
    auto& received = compressor.received(static_cast<std::size_t>(call.size()));
    Target& target = targets[n++];
    target = {piece.range, &received[static_cast<std::size_t>(origin)],
              run_of_parcel(piece.number)};
    if (!round.tail) return;
    target.run = run_of_tail(piece.number);
    target.replaced = replaced + piece.tensor;
  });
  constexpr std::size_t head = sizeof message.says;
  IndexReader reader(call, {message.head.bytes().data + head, message.head_bytes - head});
  if (!read_indices(call, reader, message.says.count, targets)) {
    return malformed(call, from, unreadable);
  }
  const ConstBytes values{message.values.bytes().data, message.values_bytes};
  if (!read_values(call, ValuesFormat::of(args.spec()), targets, values)) {
    return malformed(call, from, unreadable);
  }
  return {};
}

namespace {

// The slices of all vectors that one message carries.
struct Slices {
  Slices(Call& call, const ListTargets& into, Range range) {
    std::size_t n = 0;
    for_each_slice(into.vectors, range, [&](const ListVector&, Range slice) {
      most_bytes += index_bytes(slice.size, slice.size);
      ++n;
    });
    memory = Scratch(call.host_compute(), n * sizeof(Target));
    targets = {reinterpret_cast<Target*>(memory.bytes().data), n};
    n = 0;
    for_each_slice(into.vectors, range, [&](const ListVector& vector, Range slice) {
      PairList& list = vector.memory[into.list];
      targets[n++] = {slice, &list, list.runs()};
    });
  }

  std::size_t most_bytes = sizeof(ListHead);  // upper bound of the message with their indices
  Scratch memory;
  std::span<Target> targets;
};

// Receives the values; those of a single list directly into its run.
Task<Error> receive_values(Call& call, ListAddress from, std::span<const Target> targets,
                           std::size_t bytes) {
  if (targets.size() == 1) {
    co_return co_await call.recv(from.peer, values_lane(from), from.step,
                                 {targets[0].into->run_values(targets[0].run), bytes});
  }
  const Scratch values(call.host_compute(), bytes);
  Error error = co_await call.recv(from.peer, values_lane(from), from.step, values.bytes());
  if (!error) {
    static_cast<void>(
        read_values(call, {targets[0].into->type()}, targets, {values.bytes().data, bytes}));
  }
  co_return error;
}

Task<Error> receive_part(Call& call, ListAddress from, Range range, ListTargets into,
                         std::uint32_t& flags, Traffic& traffic) {
  const Slices slices(call, into, range);
  const Scratch coded(call.host_compute(), slices.most_bytes);
  const Expected<std::size_t> came =
      co_await call.recv_some(from.peer, from.lane, from.step, coded.bytes());
  if (!came) co_return came.error();
  ListHead head;
  IndexReader reader(call, {coded.bytes().data, *came});
  if (!read_head(reader, head) || !read_indices(call, reader, head.count, slices.targets)) {
    co_return malformed(call, from.peer, unreadable);
  }
  flags |= head.flags;
  const std::size_t values_bytes = head.count * size_of(into.type);
  traffic.received += *came + values_bytes;
  if (head.count == 0) co_return Error();
  co_return co_await receive_values(call, from, slices.targets, values_bytes);
}

}  // namespace

Task<Error> send_slices(Call& call, ListAddress to, std::span<const ListVector> vectors,
                        ListParts parts, DType type, std::uint32_t flags, Traffic& traffic) {
  const bool to_all = to.peer == every_other;
  const auto times = static_cast<std::uint64_t>(to_all ? call.size() - 1 : 1);
  for (std::size_t k = 0; k < parts.count(); ++k) {
    const ListMessage message = write_slices(call, vectors, parts[k], type, flags);
    traffic.sent += times * message.bytes();
    Task<Error> sending =
        to_all ? send_lists_to_all(call, to, message) : send_lists(call, to, message);
    Error error = co_await std::move(sending);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> receive_slices(Call& call, ListAddress from, ListParts parts, ListTargets targets,
                           std::uint32_t& flags, Traffic& traffic) {
  for_each_slice(targets.vectors, parts.range, [&](const ListVector& vector, Range) {
    vector.memory[targets.list].begin(targets.type);
  });
  for (std::size_t k = 0; k < parts.count(); ++k) {
    Error error = co_await receive_part(call, from, parts[k], targets, flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace pith
