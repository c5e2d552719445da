// The lists of all ranks in a top-k call, and the result: their sum in rank order. A dense result
// is nearly all zeros. It is zeroed while lists are on their way; the sums are written when all
// lists have arrived.
#pragma once

#include "collectives/lists/list_adder.hpp"
#include "collectives/lists/rounds.hpp"

namespace pith {

class GatheredLists {
 public:
  GatheredLists(Call& call, const SparseCall& args);
  GatheredLists(const GatheredLists&) = delete;
  GatheredLists& operator=(const GatheredLists&) = delete;
  FrameArena& frame_arena() const { return call_.frame_arena(); }

  // By tensor: not zero where only the tails of this rank count.
  std::byte* replaced(std::size_t rank) const {
    return replaced_.bytes().data + rank * args_.tensors.size();
  }
  // Zeroes dense results until all lists have arrived. Precondition: this rank has read all
  // gradients, since results may overwrite them.
  Task<Error> zero_results();
  void all_came() { all_came_ = true; }
  // Precondition: all lists have arrived.
  void write_results();

 private:
  std::size_t find_lists(const Piece& piece, const Piece& tail) const;
  void write_piece(const Piece& piece, std::size_t lists, ResultWriter& writer);
  SparseList* lists() const { return reinterpret_cast<SparseList*>(lists_.bytes().data); }
  // How many elements of a tensor have been zeroed, from the first one on.
  std::size_t& zeroed(std::size_t tensor) const {
    return reinterpret_cast<std::size_t*>(zeroed_.bytes().data)[tensor];
  }

  Call& call_;
  const SparseCall& args_;
  const bool are_coded_;  // then this rank's are read like the others
  const std::size_t ranks_;
  bool all_came_ = false;
  Scratch replaced_;
  Scratch zeroed_;
  Scratch lists_;  // of the piece that is being added up
  SumWriter sums_;
};

}  // namespace pith
