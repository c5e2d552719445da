// What DEFT decides before anything is elected: how vectors are cut into pieces, how many elements
// to elect of each, and who does. Pure arithmetic on one rank's norms.
//
//   pieces  each tensor; one larger than all elements / N is cut into N nearly equal ones
//   k       by falling norm, of what is left of k its share of the norms that are left; at least
//           one, at most all of a piece
//   bins    N of them: the most costly piece first, into the bin that has least so far. The cost is
//           size * log2(k), or size where k is one. A piece of which everything is elected is
//           common: it is sent whole, and nobody elects
//
// Of equal norms, costs and bins the first one comes first. Where the authors' code fails: a tensor
// with fewer elements than ranks gets no empty pieces, common pieces count on one rank, too, and
// the norms that are left are added up from the smallest: taken from the sum of all, the large ones
// leave nothing of the small ones.
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
  double norms_left = 0;  // of it and those behind it, by falling norm
  std::size_t k = 0;      // how many this rank elects, if it is the one
  std::uint32_t bin = 0;  // or `common`
  std::size_t run = 0;    // its place among those of its tensor and bin
};

// Of a tensor of `count` elements, `all` with the others.
std::size_t deft_pieces(std::size_t count, std::size_t all, std::size_t ranks);
// Fills in `k` of each. `order`: room for as many numbers, as below.
void share_deft(std::span<DeftPiece> pieces, std::size_t k, std::span<std::uint32_t> order);
// Fills in `bin` of each. `loads`: room for as many as there are bins.
void pack_deft(std::span<DeftPiece> pieces, std::span<std::uint32_t> order,
               std::span<double> loads);

}  // namespace pith
