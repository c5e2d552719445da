// The lists of all ranks in a top-k call, and the result that their sums in rank order make. A
// dense result, nearly all of which is zero, is zeroed while lists are under way; the sums are
// written when all have come.
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

  // Of a rank, by tensor: not zero where its tails are all that counts.
  std::byte* replaced(std::size_t rank) const {
    return replaced_.bytes().data + rank * args_.tensors.size();
  }
  // Zeroes, until all lists are there. This rank has looked at all gradients, which may lie where
  // results do.
  Task<Error> zero_results();
  void all_came() { all_came_ = true; }
  // All lists are there.
  void write_results();

 private:
  std::size_t find_lists(const Piece& piece, const Piece& tail) const;
  void write_piece(const Piece& piece, std::size_t lists, ResultWriter& writer);
  SparseList* lists() const { return reinterpret_cast<SparseList*>(lists_.bytes().data); }
  // Of a tensor's elements, from the first one on.
  std::size_t& zeroed(std::size_t tensor) const {
    return reinterpret_cast<std::size_t*>(zeroed_.bytes().data)[tensor];
  }

  Call& call_;
  const SparseCall& args_;
  const std::size_t ranks_;
  bool all_came_ = false;
  Scratch replaced_;
  Scratch zeroed_;
  Scratch lists_;  // those that are being added up
  SumWriter sums_;
};

}  // namespace pith
