#include "compress/deft/plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pith {

namespace {

double cost_of(const DeftPiece& piece) {
  const auto size = static_cast<double>(piece.size);
  return piece.k > 1 ? size * std::log2(static_cast<double>(piece.k)) : size;
}

// Orders the pieces' numbers by descending measure.
template <class Measure>
void sort_by(std::span<const DeftPiece> pieces, std::span<std::uint32_t> order, Measure measure) {
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const double first = measure(pieces[a]);
    const double second = measure(pieces[b]);
    return first != second ? first > second : a < b;
  });
}

}  // namespace

std::size_t deft_pieces(std::size_t count, std::size_t all, std::size_t ranks) {
  if (count == 0) return 0;
  const bool is_large =
      static_cast<double>(count) * static_cast<double>(ranks) > static_cast<double>(all);
  return is_large ? std::min(count, ranks) : 1;
}

void share_deft(std::span<DeftPiece> pieces, std::size_t k, std::span<std::uint32_t> order) {
  sort_by(pieces, order, [](const DeftPiece& piece) { return piece.norm; });
  double norms = 0;
  for (std::size_t i = order.size(); i-- > 0;) {
    DeftPiece& piece = pieces[order[i]];
    norms += piece.norm;
    piece.norms_left = norms;
  }
  auto left = static_cast<double>(k);
  for (const std::uint32_t i : order) {
    DeftPiece& piece = pieces[i];
    const bool counts = piece.norms_left > 0;
    const double share = counts ? std::trunc(left * (piece.norm / piece.norms_left)) : 0;
    const double most = static_cast<double>(piece.size);
    piece.k = static_cast<std::size_t>(std::clamp(share, 1.0, most));
    left -= static_cast<double>(piece.k);
  }
}

void pack_deft(std::span<DeftPiece> pieces, std::span<std::uint32_t> order,
               std::span<double> loads) {
  sort_by(pieces, order, cost_of);
  std::fill(loads.begin(), loads.end(), 0.0);
  for (const std::uint32_t i : order) {
    DeftPiece& piece = pieces[i];
    if (piece.k == piece.size) {
      piece.bin = DeftPiece::common;
      continue;
    }
    const auto least = std::min_element(loads.begin(), loads.end());
    piece.bin = static_cast<std::uint32_t>(least - loads.begin());
    *least += cost_of(piece);
  }
}

}  // namespace pith
