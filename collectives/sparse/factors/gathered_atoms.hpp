// The atoms that all ranks have drawn of a call's matrices.
#pragma once

#include <span>
#include <vector>

#include "collectives/compressed.hpp"
#include "compress/low_rank/atoms.hpp"

namespace pith {

// Every rank's atoms, of the matrices of all tensors one behind another. Each rank has drawn
// another number of them: numbers of atoms go first, then the atoms, directly to all ranks.
//
//   counts      atoms of each matrix, in 32 bits
//   numbers     float32 as AtomList has them, in messages of 64 chunks at most
//
// A rank has all of them in memory, and the factors of one matrix.
class GatheredAtoms {
 public:
  // `shapes`: of the matrices, with the rank that is wanted. `own`: as many counts. May throw
  // bad_alloc.
  GatheredAtoms(const Call& call, std::vector<FactorShape> shapes, AtomList own);

  // The memory of a rank's messages.
  std::span<std::uint32_t> counts_of(int rank);
  std::span<float> numbers_of(int rank) { return numbers_[static_cast<std::size_t>(rank)]; }
  // Makes room for the numbers of a rank whose counts are there. False: no rank can have drawn so
  // many. May throw bad_alloc.
  bool make_room(int rank);

  // The factors of the next matrix: those of all ranks, in rank order.
  struct Factors {
    FactorShape shape = {};  // its rank: the number of all atoms
    const float* left = nullptr;
    const float* right = nullptr;
  };
  // Until the next call. May throw bad_alloc.
  Factors next();

 private:
  using Numbers = std::vector<float>;

  const std::vector<FactorShape> shapes_;
  std::vector<std::uint32_t> counts_;  // by rank, then by matrix
  std::vector<Numbers> numbers_;       // by rank
  std::vector<std::size_t> read_;      // by rank: of its numbers
  std::size_t next_ = 0;               // matrix
  Numbers left_;
  Numbers right_;
};

// Counts that no rank can have drawn are refused as malformed before there is memory for them.
Task<Error> gather_atoms(Call& call, const SparseCall& args, GatheredAtoms& atoms);

}  // namespace pith
