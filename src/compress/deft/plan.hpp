// DEFT's plan before any election: how vectors are cut into pieces, how many elements each piece
// elects, and which rank elects them. Pure arithmetic on one rank's norms.
//
//  pieces  each tensor; one larger than all elements / N is cut into N nearly equal pieces
//  k       in order of descending norm, a piece gets of the remaining k the share that its norm has
//          in the remaining norms; at least one element, at most the whole piece
//  bins    N; the most costly piece first, into the bin with the lowest load. The cost is
//          size * log2(k), or size if k is one. A piece elected as a whole is `common`: it is sent
//          whole and needs no elector
//
// Ties of norms, costs and loads go to the lowest index. Deviations from the authors' code, where
// it fails: a tensor with fewer elements than ranks gets no empty pieces; common pieces count with
// one rank, too; and remaining norms are summed from the smallest, since subtraction from the total
// would cancel the small ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pith {

struct DeftPiece {
  static constexpr std::uint32_t common = 0xffffffffu;

  std::size_t tensor = 0;
  std::size_t begin = 0;
  std::size_t size = 0;
  double norm = 0;        // of this rank's gradient plus residual
  double norms_left = 0;  // sum of this norm and all smaller ones
  std::size_t k = 0;      // elements to elect, if this rank is the elector
  std::uint32_t bin = 0;  // or `common`
  std::size_t run = 0;    // its index among the pieces of its tensor and bin
};

// Number of pieces of a tensor of `count` elements, among tensors of `all` elements in total.
std::size_t deft_pieces(std::size_t count, std::size_t all, std::size_t ranks);
// Sets each piece's `k`. `order`: scratch, one entry per piece, here and below.
void share_deft(std::span<DeftPiece> pieces, std::size_t k, std::span<std::uint32_t> order);
// Sets each piece's `bin`. `loads`: scratch, one entry per bin.
void pack_deft(std::span<DeftPiece> pieces, std::span<std::uint32_t> order,
               std::span<double> loads);

}  // namespace pith
