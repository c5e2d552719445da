// What AR-Topk costs, on ideal links: seconds, without selection and reduction.
//
// P ranks, L = log2 P, k pairs of w bits an index and v bits a value, alpha a message and beta a
// byte. The first one is the paper's (Table I, Eq. 4) with w and v instead of 32 bits each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace pith {

struct SparseShape {
  int ranks = 1;
  double pairs = 0;
  double index_bits = 32;
  double value_bits = 32;
  int parcels = 1;       // messages of indices, one behind the other
  int tails = 0;         // and those behind all parcels
  double certain = 1;    // of the pairs, what parcels carry; the rest comes with tails
  bool by_vote = false;  // election=variance

  double levels() const { return std::log2(double(ranks)); }
  double index_bytes() const { return pairs * index_bits / 8; }
  double value_bytes() const { return pairs * value_bits / 8; }
  int messages() const { return parcels + tails; }
  // Of the pairs, what one message carries.
  double part(int message) const {
    return message < parcels ? certain / parcels : (1 - certain) / tails;
  }
  // The part of a vector that a rank has to hear from others, or to tell them.
  double others() const { return (ranks - 1) / double(ranks); }
};

// Allgather of all ranks' pairs: L alpha + (P-1) k (w + v) beta.
inline double topk_allgather_cost(const SparseShape& shape, double alpha, double beta) {
  return shape.levels() * alpha +
         (shape.ranks - 1) * (shape.index_bytes() + shape.value_bytes()) * beta;
}

// Ours, reduction=direct, one parcel: its indices go down a binomial tree, whose last rank is
// floor(L) hops and ceil(L) messages away; sums are 2 alpha + 2 (P-1)/P v k beta.
inline double ar_topk_whole_cost(const SparseShape& shape, double alpha, double beta) {
  return std::floor(shape.levels()) * alpha +
         std::ceil(shape.levels()) * shape.index_bytes() * beta + 2 * alpha +
         2 * shape.others() * shape.value_bytes() * beta;
}

// Ours, reduction=direct, several messages along a chain. What a port carries does not grow with P;
// the last rank hears the longest message P-2 lengths later, and the second one that holds anything
// leaves behind the values of the first.
inline double ar_topk_port_cost(const SparseShape& shape, double alpha, double beta) {
  const double indices = shape.index_bytes() * beta;
  const double values = 2 * shape.others() * shape.value_bytes() * beta;
  const double longest = std::max(shape.part(0), shape.part(shape.messages() - 1)) * indices;
  const double first = shape.part(0) > 0 ? shape.part(0) : shape.part(shape.parcels);
  const double behind = (shape.ranks - 2) * (longest + first * values / shape.ranks);
  return (shape.ranks + 1) * alpha + indices + values + behind;
}

// The same where messages are short: of two sums at once each takes 2 alpha, and no message leaves
// before the eleventh of those in front of it has been summed, for channels hold no more.
inline double ar_topk_latency_cost(const SparseShape& shape, double alpha, double beta) {
  constexpr int sums_at_once = 2;
  constexpr int ahead = 11;
  // By the rank that sums them; of two ranks, the leader is one alpha ahead of the other.
  const double notes = (shape.ranks == 2 ? 1.5 : 2) * alpha;
  const double hops = shape.ranks - 1;
  std::vector<double> done(static_cast<std::size_t>(shape.messages() + ahead));
  double all = 0;
  double longest = 0;
  for (int i = 0; i < shape.messages(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) + ahead;
    const double message = shape.part(i) * shape.index_bytes() * beta;
    all += message;
    longest = std::max(longest, message);
    const double in_a_row = hops * alpha + all + (hops - 1) * longest;
    const double let_go = done[at - ahead] + hops * (alpha + message);
    const double heard = i < ahead ? in_a_row : std::max(in_a_row, let_go);
    const double wire = 2 * shape.others() * shape.part(i) * shape.value_bytes() * beta;
    const double nothing = i + 1 == shape.messages() ? notes : 0;
    done[at] = std::max(heard, done[at - sums_at_once]) + (wire > 0 ? 2 * alpha + wire : nothing);
  }
  return *std::max_element(done.end() - sums_at_once, done.end());
}

// election=variance: P-1 tiny messages at once before all of that.
inline double ar_topk_cost(const SparseShape& shape, double alpha, double beta) {
  if (shape.ranks == 1) return 0;
  const double vote = shape.by_vote ? alpha + 8 * (shape.ranks - 1) * beta : 0;
  if (shape.messages() == 1) return vote + ar_topk_whole_cost(shape, alpha, beta);
  return vote +
         std::max(ar_topk_port_cost(shape, alpha, beta), ar_topk_latency_cost(shape, alpha, beta));
}

}  // namespace pith
