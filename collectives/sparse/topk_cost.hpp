// Cost of top-k's exchanges on ideal full-duplex links, without selecting and adding up.
//
// P ranks have k pairs each, of w bits an index and v bits a value. The denser a list, the fewer
// bits its indices take. U(m) is the number of elements that m ranks elect together, each counted
// once: the length of the sum of m lists.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "collectives/patterns.hpp"
#include "collectives/sparse/exdyna_cost.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

struct TopkShape {
  int ranks = 1;
  std::size_t count = 0;
  double density = 0;      // of a rank's list
  double common = 0;       // fraction of it that all ranks elect alike; the rest is independent
  double value_bits = 32;  // of a list; sums have 32
  int messages = 1;        // number of messages of a list, one after another

  double elements() const { return static_cast<double>(count); }
  double pairs() const { return density * elements(); }
  // U(m).
  double together(int lists) const {
    const double alike = common * pairs();
    const double others = elements() - alike;
    if (others <= 0) return alike;
    return alike + others * (1 - std::pow(1 - (pairs() - alike) / others, lists));
  }
  // U(P) of the share, one in P of the vector, in which it is the most: elements that are elected
  // independently lie unevenly. The mean of the largest of P normal numbers, within 3 % for P from
  // 2 to 128.
  double most_of_a_share() const {
    const double alike = common * pairs() / ranks;
    const double others = elements() / ranks - alike;
    const double mean = together(ranks) / ranks - alike;
    if (others <= 0) return alike + mean;
    const double p = std::log(ranks);
    const double deviation = std::sqrt(mean * std::max(1 - mean / others, 0.0));
    return alike + std::min(mean + (0.02 + 0.82 * p - 0.062 * p * p) * deviation, others);
  }
};

// Bytes of one message: its head, indices that are spread over `elements`, and values.
inline double list_bytes(double pairs, double elements, double value_bits) {
  const double blocks = std::ceil(elements / double(EncodeIndicesKernel::block_elements));
  const double head = 9 + 4 * blocks;  // ListHead, kind of list, its blocks
  if (pairs <= 0) return head;
  return head + pairs * (bits_per_index(pairs / elements) + value_bits) / 8;
}

// Every list to all ranks at once: alpha + (P-1) k (w + v) beta.
inline double topk_direct_cost(const TopkShape& shape, const LinkCost& link) {
  const double parts = shape.messages;
  const double list =
      parts * list_bytes(shape.pairs() / parts, shape.elements() / parts, shape.value_bits);
  return shape.ranks == 1 ? 0 : link.alpha + (shape.ranks - 1) * list * link.beta;
}

// From neighbour to neighbour: a rank passes a list on when its first message has arrived and the
// wire is free. (P-1) (alpha + k (w + v) beta) for one message, alpha + (P-1) k (w + v) beta for
// many. At most `at_once` messages go round together; later ones have made their first hop when
// their turn comes.
inline double topk_ring_cost(const TopkShape& shape, const LinkCost& link) {
  constexpr int at_once = 16;
  if (shape.ranks == 1) return 0;
  const double parts = shape.messages;
  const double one =
      list_bytes(shape.pairs() / parts, shape.elements() / parts, shape.value_bits) * link.beta;
  const auto round = [&](int hops, int messages) {
    return link.alpha + messages * one + (hops - 1) * std::max(link.alpha + one, messages * one);
  };
  const int hops = shape.ranks - 1;
  double turns = round(hops, std::min(shape.messages, at_once));
  for (int done = at_once; done < shape.messages && hops > 1; done += at_once) {
    turns += round(hops - 1, std::min(shape.messages - done, at_once));
  }
  return std::max(turns, round(hops, shape.messages));
}

// The lists of every share to its rank, and the sums of a share to all ranks:
// 2 alpha + (P-1)/P (k (w + v) + U(P) (w' + 32)) beta, w' bits an index where U(P) are elected. The
// rank of the share with the largest sum takes longest.
inline double topk_split_cost(const TopkShape& shape, const LinkCost& link) {
  if (shape.ranks == 1) return 0;
  const double p = shape.ranks;
  const double share = shape.elements() / p;
  const double given = list_bytes(shape.pairs() / p, share, shape.value_bits);
  const double told = list_bytes(shape.most_of_a_share(), share, 32);
  return 2 * link.alpha + (p - 1) * (given + told) * link.beta;
}

// As topk_split_cost, where of the sums only as many as a list has go to all ranks:
// 2 alpha + 2 (P-1)/P k (w + v) beta. If ranks agree on a threshold, one alpha more, and a message
// of so many bytes to every rank.
inline double kept_sums_cost(const TopkShape& shape, std::size_t agreed_bytes,
                             const LinkCost& link) {
  if (shape.ranks == 1) return 0;
  const double others = shape.ranks - 1;
  const double list =
      list_bytes(shape.pairs() / shape.ranks, shape.elements() / shape.ranks, shape.value_bits);
  const double agreed = static_cast<double>(agreed_bytes);
  return (agreed_bytes > 0 ? 3 : 2) * link.alpha + others * (2 * list + agreed) * link.beta;
}

// Sums of twice as many lists at every step: the sum over i < log2 P of alpha + U(2^i) (w_i + 32)
// beta. If P is not a power of two, the first ranks begin late, with two lists each, and delay the
// partners that receive from them. A first rank whose partner is not late receives the partner's
// list together with the extra one, and has both when its port has taken both.
inline double topk_recursive_doubling_cost(const TopkShape& shape, const LinkCost& link) {
  const auto wire = [&](int lists) {
    return list_bytes(shape.together(lists), shape.elements(), 32) * link.beta;
  };
  const int core = floor_power_of_two(shape.ranks);
  const int beyond = shape.ranks - core;
  std::vector<double> time(static_cast<std::size_t>(core));
  for (int rank = 0; rank < beyond; ++rank) {
    const bool hears_two = (rank ^ 1) >= beyond && core > 1;
    time[static_cast<std::size_t>(rank)] = link.alpha + (hears_two ? 2 : 1) * wire(1);
  }
  for (int step = 1; step < core; step *= 2) {
    const std::vector<double> before = time;
    for (int rank = 0; rank < core; ++rank) {
      const int partner = rank ^ step;
      const auto lists_of = [&](int r) {
        return step + std::clamp(beyond - (r & ~(step - 1)), 0, step);
      };
      const double sent = before[static_cast<std::size_t>(rank)] + wire(lists_of(rank));
      const double heard =
          before[static_cast<std::size_t>(partner)] + link.alpha + wire(lists_of(partner));
      time[static_cast<std::size_t>(rank)] = std::max(sent, heard);
    }
  }
  for (int rank = 0; rank < beyond; ++rank) {
    time[static_cast<std::size_t>(rank)] += link.alpha + wire(shape.ranks);
  }
  return *std::max_element(time.begin(), time.end());
}

}  // namespace pith
