// The lists of all ranks in a top-k call, and the result that their sums in rank order make. Dense
// results are written parcel by parcel, as soon as this rank has selected: while tails are under
// way. What these bring is added at the end.
#pragma once

#include <span>

#include "collectives/list_adder.hpp"
#include "collectives/rounds.hpp"

namespace pith {

class GatheredLists {
 public:
  GatheredLists(Call& call, const SparseCall& args);
  GatheredLists(const GatheredLists&) = delete;
  GatheredLists& operator=(const GatheredLists&) = delete;
  FrameArena& frame_arena() const { return call_.frame_arena(); }

  // Of a rank, by tensor: not zero where its tails are all that counts.
  std::byte* replaced(std::size_t rank) const {
    return replaced_.bytes().data + rank * args_.tensors.size();
  }
  // The lists of a round are there from all other ranks; this rank's are, all of them. Either may
  // come first.
  Task<Error> came(Round round);
  Task<Error> selected();
  // All lists are there.
  void write_results();

 private:
  // Of a piece of a parcel.
  struct Early {
    std::size_t count = 0;
    bool written = false;
  };
  Task<Error> write_parcel(Round round);
  void write_piece(const Piece& piece, const Piece& tail, ResultWriter& writer);
  bool any_replaced(std::size_t tensor) const;
  Early& early(const Piece& piece) const {
    const auto* first = reinterpret_cast<const std::size_t*>(first_.bytes().data);
    return reinterpret_cast<Early*>(early_.bytes().data)[first[piece.tensor] + piece.number];
  }
  std::byte& waits(const Round& round) const { return waiting_.bytes().data[round.step]; }
  SparseList* lists() const { return reinterpret_cast<SparseList*>(lists_.bytes().data); }
  std::size_t find_in_parcel(const Piece& piece, int rank, SparseList* lists) const;
  std::size_t find_in_tail(const Piece& piece, const Piece& tail, int rank,
                           SparseList* lists) const;

  Call& call_;
  const SparseCall& args_;
  const int ranks_;
  bool selected_ = false;
  Scratch replaced_;
  Scratch waiting_;  // of each round, whether it came before this rank had selected
  Scratch first_;    // of each tensor, among the pieces of all
  Scratch early_;
  Scratch lists_;  // those that are being added up
  SumWriter sums_;
};

}  // namespace pith
