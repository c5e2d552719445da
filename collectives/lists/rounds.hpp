// The rounds of a call, each with one message: first one for each parcel, then the tails, each of
// which carries what is left of a few parcels. A call with a single parcel has one round, its tail.
#pragma once

#include "collectives/lists/parcels.hpp"

namespace pith {

struct Round {
  std::uint32_t step = 0;
  bool tail = false;
  bool last = false;
  Pieces lists;   // at the first piece of its message
  Pieces passes;  // at the first piece to read before the message; done() if there is none
};

class Rounds {
 public:
  explicit Rounds(const SparseCall& args)
      : parcels_(args.tensors, args.parcel), streams_(has_several(parcels_)), tails_(tails(args)) {}

  bool streams() const { return streams_; }
  // Iterates over all tails as Pieces does over parcels. Every piece of a parcel lies in one of
  // theirs.
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
