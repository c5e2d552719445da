// AR-Topk: one rank, the leader, elects its k largest magnitudes. All ranks take their own values
// at the leader's indices, and these values are summed.
// [Tyagi, Swany 2023; STAR is the cyclic local top-k of ScaleCom, Chen et al. 2020]
//
//   parcel:       0           1           2           tails
//   leader      select ---> select ---> select ---> rest of the k
//                  \ indices   \           \            \       .
//   next rank     take        take        take         take       its values at the indices
//                  \  \        \  \        \  \         \  \    .
//   rank after it   .. sum      .. sum      .. sum       .. sum   of the values of all ranks
//                      \ write     \ write     \ write      \ add
//
// Who leads: ar_topk_election.cpp. The leader sends indices while it is still selecting
// (compress/topk_selector.hpp), along a chain, which costs each port one copy. If one parcel holds
// everything, they go down a binomial tree instead. Followers add their gradients without waiting
// for indices. No rank writes results before it has read all gradients, which may be in the same
// memory. If the leader's bounds of its k-th magnitude were wrong, its tails replace everything,
// and sums made by then are void.
// Costs: ar_topk_cost.hpp.
#include <array>
#include <optional>

#include "collectives/sparse/ar_topk_sharing.hpp"
#include "collectives/sparse/dense_sum.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace ar_topk {
namespace {

constexpr std::uint16_t index_lane = 0;
constexpr std::uint16_t sum_lane = 2;  // and the next one
constexpr std::uint16_t dense_lanes = 4;

// --- passing on indices ---

// Passes a message on: along a chain if there are many messages, down a binomial tree if there is
// one.
Task<Error> pass_on(Call& call, Sharing& sharing, const IndexMessage& message, std::uint32_t step) {
  const int p = call.size();
  const int place = wrap(call.rank() - sharing.leader, p);
  const int first = sharing.values.streams() ? 1 : binomial_bit(place, p) / 2;
  for (int bit = first; bit > 0; bit /= 2) {
    if (place + bit >= p) continue;
    const int to = wrap(sharing.leader + place + bit, p);
    sharing.args.traffic->sent += message.size;
    Error error = co_await call.send(to, index_lane, step, message.bytes(), message.ready);
    if (error) co_return error;
  }
  co_return Error();
}

int predecessor(const Call& call, const Sharing& sharing) {
  const int place = wrap(call.rank() - sharing.leader, call.size());
  const int back = sharing.values.streams() ? 1 : binomial_bit(place, call.size());
  return wrap(call.rank() - back, call.size());
}

// Sends the leader's messages while it selects, if there are several.
Task<Error> send_messages(Call& call, Sharing& sharing) {
  const CloseAtEnd closing(sharing.messages);
  for (std::uint32_t step = 0;; ++step) {
    const std::optional<IndexMessage> message = co_await sharing.messages.pop();
    if (!message) co_return Error();
    Error error = co_await pass_on(call, sharing, *message, step);
    if (error) co_return error;
  }
}

// Receives a follower's messages and passes them on, independently of its other work.
Task<Error> relay_messages(Call& call, Sharing& sharing) {
  const CloseAtEnd closing(sharing.messages);
  const int from = predecessor(call, sharing);
  for (Rounds rounds(sharing.args); !rounds.done();) {
    const Round round = rounds.next();
    IndexMessage message(call, most_index_bytes(round.lists, sharing.most_pairs()));
    const Expected<std::size_t> came =
        co_await call.recv_some(from, index_lane, round.step, message.memory.bytes());
    if (!came) co_return came.error();
    message.size = *came;
    sharing.args.traffic->received += *came;
    Error error = co_await pass_on(call, sharing, message, round.step);
    if (error) co_return error;
    const bool open = co_await sharing.messages.push(std::move(message));
    if (!open) break;
  }
  co_return Error();
}

// --- collecting values ---

void append_notes(Call& call, Sharing& sharing) {
  bool nonfinite = false;
  for (const CompressedTensor& tensor : sharing.args.tensors) {
    nonfinite |= tensor.compressor->stats.nonfinite > 0;
  }
  sharing.notes.write(sharing.note_values(), call.rank(), nonfinite, sharing.score.score());
  sharing.values.append_notes(sharing.note_values());
}

// The elements of a piece that the leader has elected in this round.
SparseList elected(const Sharing& sharing, const Piece& piece, bool tail) {
  const PairList& taken = sharing.compressor(piece).taken();
  const bool sent = sharing.selects_first() && tail && sharing.values.streams();
  return taken.part(taken.runs() - 1, piece.range.begin, sent ? 0 : piece.range.size);
}

IndexMessage write_lists(Call& call, Sharing& sharing, const Round& round) {
  IndexMessage message(call, most_index_bytes(round.lists, sharing.most_pairs()));
  IndexWriter writer(call, message.memory.bytes().data);
  for_each_piece(round.lists, [&](const Piece& piece) {
    const bool ends = round.tail && piece.number == 0 && !sharing.selects_first();
    const bool replaces = ends && sharing.selectors[piece.tensor].replaces();
    if (replaces) sharing.values.replace(piece.tensor);
    const SparseList list = elected(sharing, piece, round.tail);
    sharing.values.append(list);
    writer.put(piece.range, list, replaces);
  });
  message.size = writer.size();
  message.ready = writer.ready();
  return message;
}

Error unreadable(const Call& call, const Sharing& sharing) {
  return malformed(call, predecessor(call, sharing), "indices that cannot be read");
}

// Takes a follower's values at the leader's indices.
Task<Error> take_lists(Call& call, Sharing& sharing, Round round, const IndexMessage& message) {
  IndexReader reader(call, {message.bytes().data, message.size});
  Pieces pieces = round.lists;
  for (bool more = !pieces.done(); more;) {
    const Piece piece = pieces.next();
    more = !piece.ends_parcel;
    Compressor& compressor = sharing.compressor(piece);
    PairList& taken = compressor.taken();
    if (reader.replaces()) {  // only with the tensor's first tail
      if (!round.tail || piece.number != 0) co_return unreadable(call, sharing);
      compressor.return_taken(call.host_compute());
      sharing.values.replace(piece.tensor);
    }
    const std::size_t room = std::min(sharing.values.room(), piece.range.size);
    const std::size_t at = taken.count();
    taken.reserve(room);
    const Decoded list = reader.get(piece.range, taken.indices(at), room);
    if (!list.valid) co_return unreadable(call, sharing);
    double squares = 0;
    Error error = co_await take_values(call, sharing.args, compressor, list.count, squares);
    if (error) co_return error;
    sharing.values.append(taken.run(taken.runs() - 1));
  }
  co_return reader.done() ? Error() : unreadable(call, sharing);
}

Task<Error> add_gradients(Call& call, Sharing& sharing, Pieces pieces) {
  for (bool more = !pieces.done(); more;) {
    const Piece piece = pieces.next();
    more = !piece.ends_parcel;
    Error error = co_await add_in_turns(call, sharing.args, sharing.compressor(piece), piece.range);
    if (error) co_return error;
    sharing.score.see_pass(piece);
  }
  co_return Error();
}

// Adds a follower's gradients, without waiting for indices.
Task<Error> add_rounds(Call& call, Sharing& sharing) {
  const CloseAtEnd closing(sharing.added);
  if (sharing.leader == call.rank() || sharing.selects_first()) co_return Error();
  for (Rounds rounds(sharing.args); !rounds.done();) {
    const Round round = rounds.next();
    if (round.passes.done()) break;
    Error error = co_await add_gradients(call, sharing, round.passes);
    if (error) co_return error;
    const bool is_taken = co_await sharing.added.push(round.step);
    if (!is_taken) break;
  }
  sharing.has_looked();
  co_return Error();
}

// Selects the elements of the leader's lists of a round.
Task<Error> select_round(Call& call, Sharing& sharing, Round round) {
  if (sharing.selects_first()) co_return Error();
  if (round.passes.done()) sharing.has_looked();
  Error error = co_await pass(call, sharing, round.passes);
  if (error || !round.tail) co_return error;
  error = co_await finish_pieces(call, sharing.selectors, round.lists);
  co_return error;
}

// --- the strands ---

// The leader selects and sends lists. A follower takes its values at the lists that arrive, once it
// has added its gradient there. Both then hand the values to a summing strand. A single message
// goes to all children before that: behind values in the port it would reach the subtrees late.
Task<Error> share_lists(Call& call, Sharing& sharing) {
  const CloseAtEnd closing(sharing);
  const bool leads = sharing.leader == call.rank();
  if (sharing.selects_first()) sharing.has_looked();
  for (Rounds rounds(sharing.args); !rounds.done();) {
    const Round round = rounds.next();
    Summand summand{round, sharing.values.count()};
    if (leads) {
      Error error = co_await select_round(call, sharing, round);
      if (error) co_return error;
      IndexMessage message = write_lists(call, sharing, round);
      if (sharing.values.streams()) {
        const bool open = co_await sharing.messages.push(std::move(message));
        if (!open) break;
      } else {
        error = co_await pass_on(call, sharing, message, round.step);
        if (error) co_return error;
      }
    } else {
      const bool is_added = sharing.selects_first() || round.passes.done();
      if (!is_added) {
        const std::optional<std::uint32_t> added = co_await sharing.added.pop();
        if (!added) break;
      }
      const std::optional<IndexMessage> message = co_await sharing.messages.pop();
      if (!message) break;
      Error error = co_await take_lists(call, sharing, round, *message);
      if (error) co_return error;
    }
    if (round.last) append_notes(call, sharing);
    Summands& sums = sharing.sums[round.step % summing_strands];
    summand.end = sharing.values.count();
    summand.ready = sharing.values.ready();
    const bool open = co_await sums.push(summand);
    if (!open) break;
    co_await call.turn();
  }
  co_return Error();
}

// Writes the sums of a parcel and yields after every part.
Task<Error> write_early(Call& call, Sharing& sharing, Round round, std::size_t list) {
  Pieces pieces = round.lists;
  for (bool more = !pieces.done(); more; ++list) {
    const Piece piece = pieces.next();
    more = !piece.ends_parcel;
    for (Range left = piece.range; left.size > 0;) {
      const Range part = take_front(left, host_elements_at_once);
      const Fence written = sharing.values.write_early(list, piece, part);
      co_await call.until(written);
      co_await call.turn();
    }
  }
  co_return Error();
}

// A summing strand; the last one that ends closes `writing`.
class Summing {
 public:
  Summing(Sharing& sharing, Summands& sums) : sharing_(sharing), sums_(sums) {}
  void close() {
    sums_.close();
    if (--sharing_.summing == 0) sharing_.writing.close();
  }

 private:
  Sharing& sharing_;
  Summands& sums_;
};

Task<Error> sum_lists(Call& call, Sharing& sharing, Summands& sums) {
  Summing summing_strand(sharing, sums);
  const CloseAtEnd closing(summing_strand);
  for (;;) {
    const std::optional<Summand> next = co_await sums.pop();
    if (!next) co_return Error();
    if (!sharing.sums_directly()) continue;
    ValuePart part;
    ValueSum sum = sharing.values.sum_of(next->begin, next->end, part);
    sum.lane = sum_lane;
    sum.step = next->round.step;
    sum.ready = next->ready;
    Error error = co_await sum_values(call, sum, *sharing.args.traffic);
    if (error) co_return error;
    if (next->round.tail) continue;
    sharing.waiting.bytes().data[next->round.step] = std::byte{1};
    sharing.writing.set();
    co_await call.turn();
  }
}

Task<Error> write_waiting(Call& call, Sharing& sharing) {
  std::size_t list = 0;
  for (Rounds rounds(sharing.args); !rounds.done();) {
    const Round round = rounds.next();
    std::byte& waits = sharing.waiting.bytes().data[round.step];
    if (std::exchange(waits, std::byte{0}) != std::byte{0}) {
      Error error = co_await write_early(call, sharing, round, list);
      if (error) co_return error;
    }
    for_each_piece(round.lists, [&](const Piece&) { ++list; });
  }
  co_return Error();
}

Task<Error> write_rounds(Call& call, Sharing& sharing) {
  for (;;) {
    const bool rung = co_await sharing.writing.wait();
    if (!rung) co_return Error();
    if (!sharing.looked) continue;
    Error error = co_await write_waiting(call, sharing);
    if (error) co_return error;
  }
}

// --- the result ---

// All ranks have received all scores with the sums.
void remember_scores(Call& call, Sharing& sharing) {
  const auto ranks = static_cast<std::size_t>(call.size());
  const Scratch memory(call.host_compute(), ranks * sizeof(double));
  const std::span<double> scores(reinterpret_cast<double*>(memory.bytes().data), ranks);
  for (int r = 0; r < call.size(); ++r) {
    const auto known = static_cast<std::size_t>(call.rank_at(r));
    scores[known] = sharing.notes.score(sharing.note_values(), r);
  }
  for (const CompressedTensor& tensor : sharing.args.tensors) {
    tensor.compressor->succession.saw(scores, call.rank_at(sharing.leader));
  }
}

void tell(const Call& call, const Sharing& sharing) {
  constexpr std::array<std::string_view, 3> names = {"ar_topk_direct", "ar_topk_ring",
                                                     "ar_topk_tree"};
  const auto way = static_cast<std::size_t>(sharing.sums_directly() ? Reduction::direct
                                                                    : sharing.spec().reduction);
  for (const CompressedTensor& tensor : sharing.args.tensors) {
    tensor.compressor->stats.leader = call.rank_at(sharing.leader);
    tensor.compressor->stats.algorithm = names[way];
    if (sharing.leader != call.rank()) tensor.compressor->elected = 0;
  }
}

void deliver(Call& call, Sharing& sharing) {
  sharing.values.read_notes(sharing.note_values());
  tell(call, sharing);
  if (sharing.lagged()) remember_scores(call, sharing);
  const bool nonfinite = Notes::nonfinite(sharing.note_values());
  if (nonfinite && !sharing.spec().drops_nonfinite) return deliver_nan(call, sharing.args);
  sharing.values.write_results();
}

}  // namespace
}  // namespace ar_topk

Task<Error> allreduce_ar_topk(Call& call, SparseCall args) {
  using namespace ar_topk;
  Sharing sharing(call, args);
  Error error = co_await elect(call, sharing);
  if (error) co_return error;
  const bool leads = sharing.leader == call.rank();
  std::array<Task<Error>, 4 + summing_strands> strands{
      strand(call, share_lists(call, sharing)), strand(call, add_rounds(call, sharing)),
      strand(call, leads ? send_messages(call, sharing) : relay_messages(call, sharing)),
      strand(call, write_rounds(call, sharing))};
  for (std::size_t s = 0; s < summing_strands; ++s) {
    strands[4 + s] = strand(call, sum_lists(call, sharing, sharing.sums[s]));
  }
  error = co_await when_all(strands);
  if (error) co_return error;
  if (!sharing.sums_directly()) {
    // Sums everything at once, lists that are void included: they are the same on all ranks.
    error = co_await sum_densely(call, sharing.args, sharing.values.values(), dense_lanes);
    if (error) co_return error;
  }
  deliver(call, sharing);
  co_return error;
}

}  // namespace pith
