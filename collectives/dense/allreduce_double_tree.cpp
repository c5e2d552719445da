// Double binary tree allreduce: each half of the vector is reduced up one of two binary trees and
// broadcast down the same tree, chunk by chunk.
// [Sanders, Speck, Traeff 2009: two-tree algorithms for full bandwidth]
//
//   first tree, P = 8        second tree
//     0                        7            The second tree is the first one with its ranks in
//     '--4                     '--3         reverse order (P odd: shifted by one). The inner ranks
//       / \                      / \        of one tree are leaves of the other.
//      2   6                    5   1
//     / \ / \                  / \ / \      .
//     1 3 5 7                  6 4 2 0
//
// No rank has two children in both trees (P odd: one rank has), so all ranks send and receive about
// as much. Sums go up while results of earlier chunks come down: `lanes` strands each way in each
// tree.
// Cost with one chunk a half, for large P: about 2 log2(P)(alpha + beta n) + log2(P) gamma n;
// longer vectors add 2 beta a byte. Wins among many ranks, P not a power of two, for vectors too
// short for the ring. One root reduces each half and broadcasts its result: all ranks get the same
// bits.
#include <cmath>

#include "collectives/dense/tree_cost.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

// One half of the vector, and this rank's node in that half's tree.
struct Half {
  const CollectiveArgs& args;
  TreeNode node;
  Range range;
  std::size_t chunk;
  std::size_t chunks;
  std::size_t lanes;
  int which;

  Bytes piece(Bytes vector, std::size_t k) const {
    return part(vector, args.type, chunk_of(range, chunk, k));
  }
  bool is_root() const { return node.parent < 0; }
  bool is_leaf() const { return node.children[0] < 0; }
  std::uint16_t lane(std::size_t strand) const {
    return static_cast<std::uint16_t>(static_cast<std::size_t>(which) * most_lanes + strand);
  }
};

// Steps of the messages of chunk k: the partial sum up, the result down.
constexpr std::uint32_t up(std::size_t k) { return static_cast<std::uint32_t>(2 * k); }
constexpr std::uint32_t down(std::size_t k) { return up(k) + 1; }

// Sends the result of chunk k to the children, once `after` is reached.
Task<Error> pass_down(Call& call, const Half& half, std::uint16_t lane, std::size_t k,
                      Fence after) {
  for (const int child : half.node.children) {
    if (child < 0) continue;
    const Bytes result = half.piece(half.args.recv, k);
    Error error = co_await call.send(child, lane, down(k), result, after);
    if (error) co_return error;
  }
  co_return Error();
}

// Adds the children's partial sums to this rank's own chunk; at the root that is the result. A leaf
// has no children, and sends its chunk from the send buffer.
Fence add_children(Call& call, const Half& half, std::size_t k, std::array<Borrowed, 2>& lent) {
  const Bytes out = half.piece(half.args.recv, k);
  const std::byte* have = half.piece(half.args.send, k).data;
  Fence reduced;
  for (std::size_t c = 0; c < 2 && half.node.children[c] >= 0; ++c) {
    reduced = reduce(call, half.args, out, have, lent[c].data);
    have = out.data;
  }
  for (Borrowed& one : lent) call.give_back(one, reduced);
  return half.is_root() ? finish(call, half.args, out, reduced) : reduced;
}

// `next`: the first chunk that no strand has taken, as in reduce_tree.cpp.
Task<Error> sum_up(Call& call, const Half& half, std::size_t& next) {
  for (std::size_t k = next++; k < half.chunks; k = next++) {
    const std::uint16_t lane = half.lane(k % half.lanes);
    std::array<Borrowed, 2> lent;
    for (std::size_t c = 0; c < 2 && half.node.children[c] >= 0; ++c) {
      const std::size_t bytes = half.piece(half.args.recv, k).size;
      Expected<Borrowed> theirs = co_await call.borrow(half.node.children[c], lane, up(k), bytes);
      if (!theirs) co_return theirs.error();
      lent[c] = std::move(*theirs);
    }
    const Fence reduced = add_children(call, half, k, lent);
    Error error;
    if (half.is_root()) {
      error = co_await pass_down(call, half, lane, k, reduced);
    } else {
      const Bytes sum = half.piece(half.is_leaf() ? half.args.send : half.args.recv, k);
      error = co_await call.send(half.node.parent, lane, up(k), sum, reduced);
    }
    if (error) co_return error;
  }
  co_return Error();
}

// The result may overwrite this rank's partial sum in recv: the root has used that sum before.
Task<Error> take_down(Call& call, const Half& half, std::size_t& next) {
  for (std::size_t k = next++; k < half.chunks; k = next++) {
    const std::uint16_t lane = half.lane(k % half.lanes);
    Error error =
        co_await call.recv(half.node.parent, lane, down(k), half.piece(half.args.recv, k));
    if (error) co_return error;
    error = co_await pass_down(call, half, lane, k, {});
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace

Task<Error> allreduce_double_tree(Call& call, CollectiveArgs args) {
  const Blocks halves(args.count, 2);
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t lanes = lanes_for(args.tuning, chunks_in(halves[0].size, chunk));
  const auto half = [&](int which) {
    const TreeNode node = which == 0 ? in_order_tree(call.rank(), call.size())
                                     : turned_tree(call.rank(), call.size());
    const Range range = halves[which];
    return Half{args, node, range, chunk, chunks_in(range.size, chunk), lanes, which};
  };
  const std::array<Half, 2> both{half(0), half(1)};
  std::array<Task<Error>, 4 * most_lanes> strands;
  std::array<std::size_t, 2> next_up{};
  std::array<std::size_t, 2> next_down{};
  std::size_t used = 0;
  for (std::size_t h = 0; h < both.size(); ++h) {
    for (std::size_t l = 0; l < lanes; ++l) {
      strands[used++] = sum_up(call, both[h], next_up[h]);
      if (!both[h].is_root()) strands[used++] = take_down(call, both[h], next_down[h]);
    }
  }
  co_return co_await when_all(std::span(strands).first(used));
}

namespace {

// Loads of the busiest rank, in vectors: through its port, each way, and added by it.
struct Load {
  double wire = 0;
  double work = 0;
};

Load load_of(int ranks) {
  Load most;
  for (int rank = 0; rank < ranks; ++rank) {
    Load own;
    for (const TreeNode& node : {in_order_tree(rank, ranks), turned_tree(rank, ranks)}) {
      const double children = (node.children[0] >= 0) + (node.children[1] >= 0);
      own.work += children / 2;
      own.wire += (children + (node.parent >= 0)) / 2;
    }
    most = {std::max(most.wire, own.wire), std::max(most.work, own.work)};
  }
  return most;
}

}  // namespace

double allreduce_double_tree_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const auto n = static_cast<double>(shape.bytes);
  const double chunk = std::min(n / 2, static_cast<double>(shape.tuning.chunk_bytes));
  const double one_chunk = sum_time(in_order_tree, 0, shape.ranks, link, chunk) +
                           spread_time(in_order_tree, 0, shape.ranks, link, chunk);
  const double rest = n - 2 * chunk;
  const Load load = load_of(shape.ranks);
  return one_chunk + std::max(load.wire * link.beta, load.work * link.gamma) * rest;
}

}  // namespace pith
