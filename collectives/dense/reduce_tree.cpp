// Tree reduce: every rank of a binary tree adds its children's partial sums to its own vector,
// chunk by chunk, and sends the sum to its parent; the root keeps it.
//
//        root              Ranks relative to the root. A subtree's ranks follow each other: first
//       /    \             its root, then its left half, then its right half.
//      1      4            `lanes` strands take the chunks in turn, so that one chunk is reduced
//     / \    / \           while others are on the wire.
//    2   3  5   6          [pipelined trees: Sanders, Speck, Traeff 2009, section 2]
//
// A free strand takes the next chunk. If each strand had its own chunks, one strand of a leaf,
// which waits for nothing, could fill the wire with its chunks ahead of those that the parent needs
// first.
//
// Cost with one chunk of n bytes and P = 2^d - 1: (d-1)(alpha + 2 beta n + 2 gamma n); a longer
// vector adds 2 beta a byte. In place at the root. Only the root uses recv.
#include <cmath>

#include "collectives/dense/host_tree.hpp"
#include "collectives/dense/tree_cost.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

struct Tree {
  CollectiveArgs args;
  Branch node;  // in ranks of the communicator
  std::size_t chunk = 0;
  std::size_t chunks = 0;
  std::size_t lanes = 0;

  Bytes piece(Bytes memory, std::size_t k) const {
    return part(memory, args.type, chunk_of({0, args.count}, chunk, k));
  }
  bool is_root() const { return node.parent() < 0; }
  bool is_leaf() const { return node.children().empty(); }
};

// Adds the children's partial sums to this rank's chunk `mine`. `out` is complete at the fence.
Fence add_children(Call& call, const Tree& tree, Bytes mine, Bytes out,
                   std::array<Borrowed, Branch::most>& lent) {
  Fence reduced;
  const std::byte* have = mine.data;
  for (std::size_t c = 0; c < tree.node.children().size(); ++c) {
    reduced = reduce(call, tree.args, out, have, lent[c].data);
    have = out.data;
  }
  for (Borrowed& one : lent) call.give_back(one, reduced);
  return reduced;
}

// `next`: the first chunk that no strand has taken.
Task<Error> tree_strand(Call& call, const Tree& tree, std::size_t& next) {
  const bool keeps = tree.is_root() || tree.is_leaf();
  const Scratch partial(call.compute(), keeps ? 1 : tree.chunk * size_of(tree.args.type));
  Fence complete;
  for (std::size_t k = next++; k < tree.chunks; k = next++) {
    const auto lane = static_cast<std::uint16_t>(k % tree.lanes);
    const auto step = static_cast<std::uint32_t>(k);
    const Bytes mine = tree.piece(tree.args.send, k);
    std::array<Borrowed, Branch::most> lent;
    for (std::size_t c = 0; c < tree.node.children().size(); ++c) {
      Expected<Borrowed> theirs =
          co_await call.borrow(tree.node.children()[c], lane, step, mine.size);
      if (!theirs) {
        co_await call.until(complete);
        co_return theirs.error();
      }
      lent[c] = std::move(*theirs);
    }
    if (tree.is_root()) {
      const Bytes result = tree.piece(tree.args.recv, k);
      complete = add_children(call, tree, mine, result, lent);
      complete = finish(call, tree.args, result, complete);
      continue;
    }
    const Bytes sum = tree.is_leaf() ? mine : partial.bytes().part(0, mine.size);
    const Fence reduced = add_children(call, tree, mine, sum, lent);
    Error error = co_await call.send(tree.node.parent(), lane, step, sum, reduced);
    if (error) co_return error;
  }
  co_await call.until(complete);
  co_return Error();
}

}  // namespace

Task<Error> reduce_along(Call& call, CollectiveArgs args, Branch node) {
  Tree tree{args, node, chunk_elements(args.tuning, args.type)};
  tree.chunks = chunks_in(args.count, tree.chunk);
  tree.lanes = lanes_for(args.tuning, tree.chunks);
  std::array<Task<Error>, most_lanes> strands;
  std::size_t next = 0;
  for (std::size_t l = 0; l < tree.lanes; ++l) strands[l] = tree_strand(call, tree, next);
  co_return co_await when_all(std::span(strands).first(tree.lanes));
}

Task<Error> reduce_tree(Call& call, CollectiveArgs args) {
  const Branch node(pre_order_tree(call.rank(), args.root, call.size()));
  co_return co_await reduce_along(call, args, node);
}

double reduce_tree_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const auto n = static_cast<double>(shape.bytes);
  const double chunk = std::min(n, static_cast<double>(shape.tuning.chunk_bytes));
  const double children = std::min(2, shape.ranks - 1);
  const double wire = children * link.beta * (n - chunk);
  const double work = children * link.gamma * (n - chunk);
  // At an inner rank a single strand reduces and sends in turn, without overlap. Up to three ranks
  // only the root has children.
  const bool alone = shape.tuning.lanes == 1 && shape.ranks > 3;
  const double rest = alone ? std::max(wire, work + link.beta * (n - chunk)) : std::max(wire, work);
  return sum_time(pre_order_tree, 0, shape.ranks, link, chunk) + rest;
}

}  // namespace pith
