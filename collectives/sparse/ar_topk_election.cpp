// Elections of AR-Topk. Who leads a step:
//
//   staleness (STAR)  rank number step mod P
//   variance (VAR)    the largest score; all ranks exchange scores first, which costs one alpha
//   variance-lagged   the largest score of the step before, which came with that step's sums
//
// Scores:
//
//   compressed        as in the paper: the squared norm of a rank's k largest magnitudes, from its
//                     selection, or from a histogram if it need not select
//   raw               as in the authors' code: the smoothed norm of the gradient
#include <algorithm>

#include "collectives/sparse/ar_topk_sharing.hpp"
#include "collectives/strands.hpp"

namespace pith::ar_topk {

namespace {

constexpr std::uint16_t score_lane = 1;

Task<Error> trade_score(Call& call, int distance, std::span<double> scores) {
  const int to = wrap(call.rank() + distance, call.size());
  const int from = wrap(call.rank() - distance, call.size());
  const auto bytes = [&](int rank) {
    double& score = scores[static_cast<std::size_t>(call.rank_at(rank))];
    return Bytes{reinterpret_cast<std::byte*>(&score), sizeof score};
  };
  co_return co_await call.exchange(to, from, score_lane, 0, bytes(call.rank()), bytes(from));
}

// Sets scores[r] to the score of the caller's rank r, for all r.
Task<Error> allgather_scores(Call& call, std::span<double> scores) {
  return with_every_other(
      call, [&call, scores](int distance) { return trade_score(call, distance, scores); });
}

Task<Error> select_all(Call& call, Sharing& sharing) {
  for (Rounds rounds(sharing.args); !rounds.done();) {
    const Round round = rounds.next();
    Error error = co_await pass(call, sharing, round.passes);
    if (error) co_return error;
    if (!round.tail) continue;
    error = co_await finish_pieces(call, sharing.selectors, round.lists);
    if (error) co_return error;
  }
  co_return Error();
}

// Returns this rank's selection to the accumulator, since another rank leads.
void step_down(Call& call, const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->return_taken(call.host_compute());
    tensor.compressor->stats.threshold = 0;
  }
}

Task<Error> elect_by_variance(Call& call, Sharing& sharing) {
  if (sharing.selects_first()) {
    Error selected = co_await select_all(call, sharing);
    if (selected) co_return selected;
    sharing.score.see_selected();
  } else {
    Error seen = co_await sharing.score.see_gradients();
    if (seen) co_return seen;
  }
  const auto ranks = static_cast<std::size_t>(call.size());
  const Scratch memory(call.host_compute(), ranks * sizeof(double));
  const std::span<double> scores(reinterpret_cast<double*>(memory.bytes().data), ranks);
  scores[static_cast<std::size_t>(call.callers_rank())] = sharing.score.score();
  Error error = co_await allgather_scores(call, scores);
  if (error) co_return error;
  sharing.leader = call.place_of(first_largest(scores));
  if (sharing.selects_first() && sharing.leader != call.rank()) step_down(call, sharing.args);
  co_return error;
}

// Elects by what all ranks know already.
Task<Error> elect_by_history(Call& call, Sharing& sharing) {
  const Compressor& first = *sharing.args.tensors[0].compressor;
  if (!sharing.lagged()) {
    const auto p = static_cast<std::uint64_t>(call.size());
    sharing.leader = call.place_of(static_cast<int>(first.step % p));
    co_return Error();
  }
  sharing.leader = call.place_of(first.succession.leader(call.size()));
  if (score_kind_of(sharing.spec()) == Score::raw) {
    co_return co_await sharing.score.see_gradients();
  }
  sharing.score.count_passes();
  co_return Error();
}

}  // namespace

Task<Error> elect(Call& call, Sharing& sharing) {
  const bool votes = election_of(sharing.spec()) == Election::variance;
  if (votes) co_return co_await elect_by_variance(call, sharing);
  co_return co_await elect_by_history(call, sharing);
}

}  // namespace pith::ar_topk
