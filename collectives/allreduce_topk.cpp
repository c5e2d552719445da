// Top-k allreduce by allgather: every rank elects its own k largest magnitudes, all ranks get all
// lists and add them up in rank order.
//
//   parcel:     0        1        2            tail
//   rank r   select > select > select ...     the rest of the k
//               \ send   \ send   \ send        \ send        to every other rank, or the next one
//   others       decode   decode   decode         decode > add up > write
//
// Pairs leave while later ones are still being looked for: see compress/topk_selector.hpp. Where
// one parcel holds everything, the tail is all there is. Direct, a list goes to all at once: cost
// (parcels + 1) alpha + (P-1) k beta b with b bytes a pair, about 3; twice the messages, for values
// travel behind their indices. Round the ring it goes from neighbour to neighbour, P - 2 alpha
// longer; but nobody hears more than one sender, whose lists a switch has room for. The
// error-feedback scheme is that of [Aji, Heafield 2017; Lin et al. 2018], its exact one-pass
// selection ours.
#include <array>

#include "collectives/list_adder.hpp"
#include "collectives/list_message.hpp"
#include "collectives/result_writer.hpp"
#include "collectives/selectors.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

constexpr std::uint16_t list_lane = 0;
constexpr std::size_t whole = ~std::size_t{0};
constexpr std::uint32_t rounds_at_once = 16;

struct Gathering {
  SparseCall args;
  std::uint32_t parcels;  // of several each is sent as it is ready, of one only the tail
  bool by_ring;           // from neighbour to neighbour
  std::size_t most;       // pairs of one message
  bool nonfinite = false;

  bool streams() const { return parcels > 1; }
  Pieces pieces() const { return {args.tensors, args.parcel}; }
  Parcel tails() const { return {{args.tensors, whole}, true}; }
};

std::uint32_t parcels_of(const SparseCall& args) {
  std::uint32_t parcels = 0;
  for (Pieces pieces(args.tensors, args.parcel); !pieces.done();) {
    if (pieces.next().ends_parcel) ++parcels;
  }
  return parcels;
}

std::size_t most_pairs(const SparseCall& args) {
  std::size_t most = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) most += elected_of(args.spec().density, tensor.count);
  }
  return most;
}

// Lists that meet before one port of a switch, in bytes that it surely has room for.
bool fits_a_port(const Call& call, const SparseCall& args, std::size_t pairs) {
  constexpr std::size_t port_bytes = std::size_t{1} << 16;
  const std::size_t pair_bytes = 1 + size_of(args.spec().values);
  return static_cast<std::size_t>(call.size() - 1) * pairs * pair_bytes <= port_bytes;
}

bool goes_round_ring(const Call& call, const SparseCall& args, std::size_t pairs) {
  if (call.size() <= 2 || args.spec().exchange == Exchange::direct) return false;
  if (args.spec().exchange != Exchange::automatic) return true;
  return !call.views() && !fits_a_port(call, args, pairs);
}

// Round the ring, what a rank sends on has been underway for `hops` before.
ListAddress address(const Call& call, int peer, std::uint32_t parcel, int hops = 0) {
  const auto steps = static_cast<std::uint32_t>(call.size());
  return {peer, list_lane, parcel * steps + static_cast<std::uint32_t>(hops)};
}

Task<Error> send_own(Call& call, Gathering& gathering, Parcel parcel, std::uint32_t number,
                     std::uint32_t flags) {
  const ListMessage message = write_lists(call, gathering.args, parcel, flags);
  const std::uint64_t bytes = message.head_bytes + message.values_bytes;
  const int next = wrap(call.rank() + 1, call.size());
  const auto times = static_cast<std::uint64_t>(gathering.by_ring ? 1 : call.size() - 1);
  gathering.args.traffic->sent += times * bytes;
  const ListAddress to = address(call, next, number);
  if (gathering.by_ring) co_return co_await send_lists(call, to, message);
  co_return co_await send_lists_to_all(call, to, message);
}

Task<Error> select_and_send(Call& call, Gathering& gathering) {
  const SparseCall& args = gathering.args;
  Selectors selectors(call, args, gathering.streams());
  std::uint32_t number = 0;
  for (Pieces pieces = gathering.pieces(); !pieces.done();) {
    const Pieces parcel = pieces;
    Task<Error> selecting = select_pieces(call, selectors, parcel, [](const Piece&) {});
    Error error = co_await std::move(selecting);
    if (error) co_return error;
    while (!pieces.next().ends_parcel) {
    }
    if (!gathering.streams()) continue;
    error = co_await send_own(call, gathering, {parcel}, number++, 0);
    if (error) co_return error;
    co_await call.turn();
  }
  const Parcel tails = gathering.tails();
  Task<Error> finishing = finish_pieces(call, selectors, tails.pieces);
  Error error = co_await std::move(finishing);
  if (error) co_return error;
  const std::uint32_t flags = found_nonfinite(args) ? ListHead::nonfinite : 0;
  gathering.nonfinite |= flags != 0;
  co_return co_await send_own(call, gathering, tails, number, flags);
}

Error read(Call& call, Gathering& gathering, Parcel parcel, const ListMessage& message, int origin,
           int from) {
  ListHead head;
  Error error = read_lists(call, gathering.args, parcel, message, origin, from, head);
  gathering.nonfinite |= (head.flags & ListHead::nonfinite) != 0;
  return error;
}

Task<Error> receive_direct(Call& call, Gathering& gathering, Parcel parcel, std::uint32_t number) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    ListMessage message;
    Error error = co_await fetch_lists(call, gathering.args, parcel, address(call, from, number),
                                       gathering.most, message);
    if (!error) error = read(call, gathering, parcel, message, from, from);
    if (error) co_return error;
  }
  co_return Error();
}

// Of what has come a copy goes on, unless it has been everywhere.
Task<Error> send_on(Call& call, Gathering& gathering, const ListMessage& message,
                    std::uint32_t number, int hops) {
  if (hops == call.size() - 1) co_return Error();
  gathering.args.traffic->sent += message.head_bytes + message.values_bytes;
  const int next = wrap(call.rank() + 1, call.size());
  co_return co_await send_lists(call, address(call, next, number, hops), message);
}

// The list of the rank that is one hop further away comes while this one is sent on and read.
Task<Error> fetch_next(Call& call, Gathering& gathering, Parcel parcel, std::uint32_t number,
                       int hops, ListMessage& message) {
  if (hops == call.size() - 1) co_return Error();
  const int previous = wrap(call.rank() - 1, call.size());
  co_return co_await fetch_lists(call, gathering.args, parcel,
                                 address(call, previous, number, hops), gathering.most, message);
}

Task<Error> read_one(Call& call, Gathering& gathering, Parcel parcel, const ListMessage& message,
                     int hops) {
  const int origin = wrap(call.rank() - hops, call.size());
  const int previous = wrap(call.rank() - 1, call.size());
  co_return read(call, gathering, parcel, message, origin, previous);
}

Task<Error> receive_round(Call& call, Gathering& gathering, Parcel parcel, std::uint32_t number) {
  std::array<ListMessage, 2> messages;
  Error error = co_await fetch_next(call, gathering, parcel, number, 0, messages[0]);
  for (int hops = 1; !error && hops < call.size(); ++hops) {
    ListMessage& here = messages[static_cast<std::size_t>(hops - 1) % 2];
    ListMessage& coming = messages[static_cast<std::size_t>(hops) % 2];
    std::array<Task<Error>, 3> strands{
        strand(call, send_on(call, gathering, here, number, hops)),
        strand(call, fetch_next(call, gathering, parcel, number, hops, coming)),
        strand(call, read_one(call, gathering, parcel, here, hops))};
    error = co_await when_all(strands);
  }
  co_return error;
}

Task<Error> receive(Call& call, Gathering& gathering, Parcel parcel, std::uint32_t number) {
  return gathering.by_ring ? receive_round(call, gathering, parcel, number)
                           : receive_direct(call, gathering, parcel, number);
}

// Every `stride`-th parcel from `first` on.
Task<Error> receive_some(Call& call, Gathering& gathering, std::uint32_t first,
                         std::uint32_t stride) {
  std::uint32_t number = 0;
  for (Pieces pieces = gathering.pieces(); !pieces.done(); ++number) {
    if (number % stride == first) {
      Error error = co_await receive(call, gathering, {pieces}, number);
      if (error) co_return error;
    }
    while (!pieces.next().ends_parcel) {
    }
  }
  co_return Error();
}

// Rounds of several parcels go on beside each other, for each is as slow as its slowest rank.
Task<Error> receive_parcels(Call& call, Gathering& gathering) {
  const std::uint32_t at_once = gathering.by_ring ? rounds_at_once : 1;
  std::array<Task<Error>, rounds_at_once> rounds;
  for (std::uint32_t r = 0; r < at_once; ++r) {
    rounds[r] = strand(call, receive_some(call, gathering, r, at_once));
  }
  co_return co_await when_all(std::span(rounds).first(at_once));
}

Task<Error> receive_lists(Call& call, Gathering& gathering) {
  if (gathering.streams()) {
    Error error = co_await receive_parcels(call, gathering);
    if (error) co_return error;
  }
  const std::uint32_t number = gathering.streams() ? gathering.parcels : 0;
  co_return co_await receive(call, gathering, gathering.tails(), number);
}

// In rank order, of each rank what came with a piece, whose run it is, and the tail.
std::size_t find_lists(Call& call, Compressor& compressor, std::size_t run, SparseList* lists) {
  const auto ranks = static_cast<std::size_t>(call.size());
  auto& received = compressor.received(ranks);
  std::size_t n = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const bool own = r == static_cast<std::size_t>(call.rank());
    const PairList& list = own ? compressor.taken() : received[r];
    const std::size_t tail = list.runs() - 1;
    if (run < tail) lists[n++] = list.run(run);
    lists[n++] = list.run(tail);
  }
  return n;
}

void write_results(Call& call, const SparseCall& args) {
  const std::size_t most = 2 * static_cast<std::size_t>(call.size());
  const Scratch memory(call.host_compute(), most * sizeof(SparseList));
  auto* lists = reinterpret_cast<SparseList*>(memory.bytes().data);
  SumWriter sums(call, most);
  Pieces pieces(args.tensors, args.parcel);
  for (const CompressedTensor& tensor : args.tensors) {
    ResultWriter writer(call, tensor);
    for (std::size_t done = 0; done < tensor.count;) {
      const Piece piece = pieces.next();
      const std::size_t n = find_lists(call, *tensor.compressor, piece.number, lists);
      sums.write({lists, n}, args.spec().values, piece.range, writer);
      done += piece.range.size;
    }
    args.conclude(tensor, writer);
  }
}

}  // namespace

Task<Error> allreduce_topk(Call& call, SparseCall args) {
  const std::size_t most = most_pairs(args);
  Gathering gathering{args, parcels_of(args), goes_round_ring(call, args, most), most};
  std::array<Task<Error>, 2> strands{strand(call, select_and_send(call, gathering)),
                                     strand(call, receive_lists(call, gathering))};
  Error error = co_await when_all(strands);
  if (error) co_return error;
  if (gathering.nonfinite && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    write_results(call, args);
  }
  co_return error;
}

}  // namespace pith
