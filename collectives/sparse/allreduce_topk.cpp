// Top-k allreduce by allgather: every rank elects its own k largest magnitudes; all ranks get all
// lists and add them up in rank order.
//
//   parcel:     0        1        2            tails
//   rank r   select > select > select ...     the rest of the k, in a few parts
//               \ send   \ send   \ send        \ send        to every other rank, or the next one
//   others       decode   decode   decode         decode > add up
//                                     > zero the result             > write the sums
//
// Pairs leave while later ones are still being selected (compress/topk_selector.hpp). Selecting
// goes before writing, for which only this rank's next call waits. If one parcel holds everything,
// it is sent as the tail.
//
// exchange=direct: a list goes to all ranks at once. Cost: (parcels + tails) alpha + (P-1) k beta b
// with b bytes a pair, about 3; twice as many messages, since values follow their indices in a
// second one.
// exchange=ring: a list goes from neighbour to neighbour. This takes (P-2) alpha longer, but a rank
// receives from one sender only, whose lists fit the buffer of a switch. The last list of the rank
// that selects last has P-1 hops to go: cut into parts that follow each other, it takes little
// longer than for one hop.
// Costs on ideal links: topk_cost.hpp.
//
// values=int8, int4: a message's values are coded in blocks. Each rank reads its own lists as the
// others do, so that all add the same values, and keeps what coding has lost.
//
// Error feedback is that of [Aji, Heafield 2017; Lin et al. 2018], exact selection in one pass is
// ours.
#include <array>
#include <optional>

#include "collectives/lists/coded_losses.hpp"
#include "collectives/lists/gathered_lists.hpp"
#include "collectives/lists/list_message.hpp"
#include "collectives/sparse/selectors.hpp"
#include "collectives/strands.hpp"
#include "compress/topk_scheme.hpp"

namespace pith {

namespace {

constexpr std::uint16_t list_lane = 0;
constexpr std::uint32_t rounds_at_once = 16;

std::size_t most_pairs(const SparseCall& args) {
  std::size_t most = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) most += elected_of(args.spec().density, tensor.count);
  }
  return most;
}

// A message with this rank's selected pairs, to be sent.
struct Outgoing {
  ListMessage message;
  std::uint32_t step = 0;
};
using OutgoingMessages = Channel<Outgoing, 16>;

struct Gathering {
  Gathering(Call& call, const SparseCall& sparse)
      : args(sparse),
        most(most_pairs(args)),
        by_ring(goes_round_ring(args.spec(), call.size(), most, call.all_views())),
        are_coded(list_coding_of(args.spec())),
        messages(call.scheduler()),
        lists(call, args) {
    for (const CompressedTensor& tensor : args.tensors) {
      tensor.compressor->stats.algorithm = by_ring ? "topk_ring" : "topk_direct";
    }
  }

  SparseCall args;
  std::size_t most;  // most pairs of a message
  bool by_ring;      // lists go from neighbour to neighbour
  bool are_coded;    // so are the values of lists
  OutgoingMessages messages;
  GatheredLists lists;
  bool nonfinite = false;
};

// The name of a message; on the ring, of one that has made `hops` hops before.
ListAddress address(const Call& call, int peer, std::uint32_t step, int hops = 0) {
  const auto steps = static_cast<std::uint32_t>(call.size());
  return {peer, list_lane, step * steps + static_cast<std::uint32_t>(hops)};
}

Task<Error> send_own(Call& call, Gathering& gathering, const Outgoing& own) {
  const int next = wrap(call.rank() + 1, call.size());
  const auto times = static_cast<std::uint64_t>(gathering.by_ring ? 1 : call.size() - 1);
  gathering.args.traffic->sent += times * own.message.bytes();
  const ListAddress to = address(call, next, own.step);
  if (gathering.by_ring) co_return co_await send_lists(call, to, own.message);
  co_return co_await send_lists_to_all(call, to, own.message);
}

// Sends this rank's lists while later ones are being selected.
Task<Error> send_lists_of(Call& call, Gathering& gathering) {
  const CloseAtEnd closing(gathering.messages);
  for (;;) {
    const std::optional<Outgoing> own = co_await gathering.messages.pop();
    if (!own) co_return Error();
    Error error = co_await send_own(call, gathering, *own);
    if (error) co_return error;
  }
}

Outgoing write_round(Call& call, Gathering& gathering, const Round& round) {
  const bool spoils = round.tail && found_nonfinite(gathering.args);
  gathering.nonfinite |= spoils;
  return {write_lists(call, gathering.args, round, spoils ? ListHead::nonfinite : 0), round.step};
}

Error read(Call& call, Gathering& gathering, const Round& round, const ListMessage& message,
           int origin, int from) {
  gathering.nonfinite |= (message.says.flags & ListHead::nonfinite) != 0;
  std::byte* replaced = gathering.lists.replaced(static_cast<std::size_t>(origin));
  return read_lists(call, gathering.args, round, message, origin, from, replaced);
}

Task<Error> read_own(Call& call, Gathering& gathering, const Round& round,
                     const ListMessage& message) {
  co_await call.until(message.ready);
  co_return read(call, gathering, round, message, call.rank(), call.rank());
}

Task<Error> select(Call& call, Gathering& gathering) {
  const CloseAtEnd closing(gathering.messages);
  const SparseCall& args = gathering.args;
  Rounds rounds(args);
  Selectors selectors(call, args, rounds.streams());
  while (!rounds.done()) {
    const Round round = rounds.next();
    Task<Error> selecting = select_pieces(call, selectors, round.passes, [](const Piece&) {});
    Error error = co_await std::move(selecting);
    if (error) co_return error;
    if (round.tail) {
      error = co_await finish_pieces(call, selectors, round.lists);
      if (error) co_return error;
    }
    Outgoing own = write_round(call, gathering, round);
    if (gathering.are_coded) {
      error = co_await read_own(call, gathering, round, own.message);
      if (error) co_return error;
    }
    const bool open = co_await gathering.messages.push(std::move(own));
    if (!open) co_return Error();
    co_await call.turn();
  }
  gathering.messages.close();
  co_return co_await gathering.lists.zero_results();
}

Task<Error> receive_direct(Call& call, Gathering& gathering, Round round) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    ListMessage message;
    Error error = co_await fetch_lists(call, gathering.args, round, address(call, from, round.step),
                                       gathering.most, message);
    if (!error) error = read(call, gathering, round, message, from, from);
    if (error) co_return error;
  }
  co_return Error();
}

// Passes a received message on, unless all ranks have had it.
Task<Error> send_on(Call& call, Gathering& gathering, const ListMessage& message, Round round,
                    int hops) {
  if (hops == call.size() - 1) co_return Error();
  gathering.args.traffic->sent += message.bytes();
  const int next = wrap(call.rank() + 1, call.size());
  co_return co_await send_lists(call, address(call, next, round.step, hops), message);
}

// Receives the list of the rank one hop further away, while the current one is passed on and read.
Task<Error> fetch_next(Call& call, Gathering& gathering, Round round, int hops,
                       ListMessage& message) {
  if (hops == call.size() - 1) co_return Error();
  const int previous = wrap(call.rank() - 1, call.size());
  const ListAddress from = address(call, previous, round.step, hops);
  co_return co_await fetch_lists(call, gathering.args, round, from, gathering.most, message);
}

Task<Error> read_one(Call& call, Gathering& gathering, Round round, const ListMessage& message,
                     int hops) {
  const int origin = wrap(call.rank() - hops, call.size());
  const int previous = wrap(call.rank() - 1, call.size());
  co_return read(call, gathering, round, message, origin, previous);
}

Task<Error> receive_round(Call& call, Gathering& gathering, Round round) {
  std::array<ListMessage, 2> messages;
  Error error = co_await fetch_next(call, gathering, round, 0, messages[0]);
  for (int hops = 1; !error && hops < call.size(); ++hops) {
    ListMessage& here = messages[static_cast<std::size_t>(hops - 1) % 2];
    ListMessage& coming = messages[static_cast<std::size_t>(hops) % 2];
    std::array<Task<Error>, 3> strands{
        strand(call, send_on(call, gathering, here, round, hops)),
        strand(call, fetch_next(call, gathering, round, hops, coming)),
        strand(call, read_one(call, gathering, round, here, hops))};
    error = co_await when_all(strands);
  }
  co_return error;
}

Task<Error> receive(Call& call, Gathering& gathering, const Round& round) {
  return gathering.by_ring ? receive_round(call, gathering, round)
                           : receive_direct(call, gathering, round);
}

// Every `stride`-th round from `first` on.
Task<Error> receive_some(Call& call, Gathering& gathering, std::uint32_t first,
                         std::uint32_t stride) {
  for (Rounds rounds(gathering.args); !rounds.done();) {
    const Round round = rounds.next();
    if (round.step % stride != first) continue;
    Error error = co_await receive(call, gathering, round);
    if (error) co_return error;
  }
  co_return Error();
}

// On the ring rounds run side by side, since each is as slow as its slowest rank.
Task<Error> receive_lists(Call& call, Gathering& gathering) {
  const std::uint32_t at_once = gathering.by_ring ? rounds_at_once : 1;
  std::array<Task<Error>, rounds_at_once> strands;
  for (std::uint32_t r = 0; r < at_once; ++r) {
    strands[r] = strand(call, receive_some(call, gathering, r, at_once));
  }
  Error error = co_await when_all(std::span(strands).first(at_once));
  gathering.lists.all_came();
  co_return error;
}

Task<Error> gather_lists(Call& call, SparseCall args) {
  Gathering gathering(call, args);
  std::array<Task<Error>, 3> strands{strand(call, select(call, gathering)),
                                     strand(call, send_lists_of(call, gathering)),
                                     strand(call, receive_lists(call, gathering))};
  Error error = co_await when_all(strands);
  if (error) co_return error;
  if (gathering.nonfinite && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    if (gathering.are_coded) keep_list_losses(call, args);
    gathering.lists.write_results();
  }
  co_return error;
}

// Sums of 16-bit values cannot go by recursive doubling: every hop rounds, and no residual keeps
// the losses. Nor is any sum coded.
bool sums_lists(const Spec& spec) {
  if (list_coding_of(spec)) return false;
  const Exchange exchange = exchange_of(spec);
  if (exchange == Exchange::recursive_doubling) return spec.values == DType::f32;
  return exchange == Exchange::split;
}

}  // namespace

Task<Error> allreduce_topk_whole(Call& call, SparseCall args);

Task<Error> allreduce_topk(Call& call, SparseCall args) {
  return sums_lists(args.spec()) ? allreduce_topk_whole(call, args) : gather_lists(call, args);
}

}  // namespace pith
