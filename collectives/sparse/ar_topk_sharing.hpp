// What the strands of one AR-Topk call share. Private to allreduce_ar_topk.cpp and
// ar_topk_election.cpp.
#pragma once

#include <array>
#include <span>

#include "collectives/lists/common_values.hpp"
#include "collectives/lists/index_message.hpp"
#include "collectives/sparse/notes.hpp"
#include "collectives/sparse/score_keeper.hpp"
#include "collectives/sparse/selectors.hpp"
#include "collectives/strands.hpp"
#include "compress/ar_topk_scheme.hpp"

namespace pith::ar_topk {

// More strands would make indices wait at every port.
constexpr std::size_t summing_strands = 2;

// The values of one round, ready to be summed.
struct Summand {
  Round round;
  std::size_t begin = 0;
  std::size_t end = 0;
  Fence ready = {};
};
using Messages = Channel<IndexMessage, 16>;
using Summands = Channel<Summand, 4>;
using Steps = Channel<std::uint32_t, 16>;

struct Sharing {
  Sharing(Call& call, const SparseCall& sparse)
      : args(sparse),
        notes(spec().values, call.size(), lagged()),
        score(call, args),
        selectors(call, args, Rounds(args).streams() && !selects_first()),
        values(call, args, most_pairs(), notes.count()),
        messages(call.scheduler()),
        sums{Summands(call.scheduler()), Summands(call.scheduler())},
        added(call.scheduler()),
        writing(call.scheduler()),
        waiting(call.host_compute(), rounds_in(args)),
        note_memory(call.host_compute(), notes.count() * sizeof(float)) {
    call.run<ZeroKernel>({waiting.bytes().data, waiting.bytes().size});
  }

  const Spec& spec() const { return args.spec(); }
  bool lagged() const { return election_of(spec()) == Election::variance_lagged; }
  // All ranks select before the leader is known.
  bool selects_first() const {
    return election_of(spec()) == Election::variance && score_kind_of(spec()) == Score::compressed;
  }
  // 16-bit values are summed in float32, which only the direct reduction does.
  bool sums_directly() const {
    return spec().reduction == Reduction::direct || spec().values != DType::f32;
  }
  std::size_t most_pairs() const {
    std::size_t most = 0;
    for (const CompressedTensor& tensor : args.tensors) {
      if (tensor.count > 0) most += elected_of(spec().density, tensor.count);
    }
    return most;
  }
  void has_looked() {
    looked = true;
    writing.set();
  }
  // The strand that hands on lists and values has ended: nobody waits for it any more.
  void close() {
    messages.close();
    for (Summands& summands : sums) summands.close();
    added.close();
  }
  Compressor& compressor(const Piece& piece) const {
    return *args.tensors[piece.tensor].compressor;
  }
  std::span<float> note_values() const {
    return {reinterpret_cast<float*>(note_memory.bytes().data), notes.count()};
  }

  const SparseCall& args;
  const Notes notes;
  int leader = 0;
  ScoreKeeper score;
  Selectors selectors;
  CommonValues values;
  Messages messages;
  std::array<Summands, summing_strands> sums;
  Steps added;  // rounds whose gradients a follower has added
  // `waiting` has a byte for each round, 1 if its sums are to be written. They wait until this rank
  // has read all gradients (`looked`), which is more urgent. `writing` is set when either changes,
  // and closed by the last summing strand.
  Event writing;
  Scratch waiting;
  bool looked = false;
  std::size_t summing = summing_strands;
  Scratch note_memory;
};

// Adds the pieces' gradients and selects from them.
inline Task<Error> pass(Call& call, Sharing& sharing, Pieces pieces) {
  return select_pieces(call, sharing.selectors, pieces,
                       [&sharing](const Piece& piece) { sharing.score.see_pass(piece); });
}

// Elects the leader. If this takes every rank's selection, all gradients have been added
// afterwards, and the leader has taken its elected elements.
Task<Error> elect(Call& call, Sharing& sharing);

}  // namespace pith::ar_topk
