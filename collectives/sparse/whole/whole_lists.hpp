// What exchanges of whole lists have in common: they begin when a rank has read all its vectors,
// and the lists of all tensors share messages.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/lists/list_line.hpp"

namespace pith {

// Elects this rank's k largest of every tensor, each as one run of its taken().
Task<Error> elect_lists(Call& call, SparseCall args);

// The elected lists as vectors to be summed, with `lists` lists of memory each.
class ListVectors {
 public:
  static constexpr std::uint16_t lane = 0;                               // of their messages
  static constexpr std::size_t message_elements = std::size_t{1} << 28;  // at most

  ListVectors(Call& call, const SparseCall& args, std::size_t lists);
  std::span<ListVector> all() const {
    return {reinterpret_cast<ListVector*>(memory_.bytes().data), size_};
  }

 private:
  Scratch memory_;
  std::size_t size_;
};

// Writes the results: the vectors' lists, whose values have this type.
void put_results(Call& call, const SparseCall& args, std::span<const ListVector> vectors,
                 DType type);

}  // namespace pith
