// The messages of a streamed call, one behind the other: a parcel each, and then the tails, which
// carry what the parcels left of a few of them each. Where there is but one parcel, its tail is
// all.
#pragma once

#include "collectives/lists/parcels.hpp"

namespace pith {

// What one message is about.
struct Round {
  std::uint32_t step = 0;
  bool tail = false;
  bool last = false;
  Pieces lists;   // the first piece of its lists
  Pieces passes;  // the first piece that is to be looked at for them; done() where none is
};

class Rounds {
 public:
  explicit Rounds(const SparseCall& args)
      : parcels_(args.tensors, args.parcel), streams_(has_several(parcels_)), tails_(tails(args)) {}

  bool streams() const { return streams_; }
  // All tails, from the first piece on. Every piece of a parcel lies in one of these.
  Pieces tails(const SparseCall& args) const {
    constexpr std::size_t whole = ~std::size_t{0};  // every tensor is one piece
    if (!streams_) return {args.tensors, whole};
    std::size_t all = 0;
    for (const CompressedTensor& tensor : args.tensors) all += tensor.count;
    return {args.tensors, tail_elements(all, args.parcel)};
  }

  bool done() const { return done_; }
  // Precondition: !done().
  Round next() {
    const bool tail = !streams_ || parcels_.done();
    const Pieces passes = parcels_;
    Pieces& from = tail ? tails_ : parcels_;
    const Pieces lists = from;
    if (!from.done()) skip_parcel(from);
    done_ = tail && tails_.done();
    return {step_++, tail, done_, lists, passes};
  }

 private:
  static void skip_parcel(Pieces& pieces) {
    while (!pieces.next().ends_parcel) {
    }
  }
  static bool has_several(Pieces pieces) {
    if (!pieces.done()) skip_parcel(pieces);
    return !pieces.done();
  }

  Pieces parcels_;  // those left
  bool streams_;
  Pieces tails_;  // those left
  bool done_ = false;
  std::uint32_t step_ = 0;
};

inline std::size_t rounds_in(const SparseCall& args) {
  std::size_t n = 0;
  for (Rounds rounds(args); !rounds.done(); ++n) static_cast<void>(rounds.next());
  return n;
}

}  // namespace pith
