// Naive tree allreduce: the vectors are summed up a binary tree to rank 0, and the sum is sent down
// the same tree, the whole vector in one message both times.
//
//        0          P = 7: each rank before its left and its right half
//      /   \        up: a rank adds what its children send, and sends the sum to its parent
//     1     4       down: a rank receives the result, and sends it to its children
//    / \   / \      .
//   2   3 5   6
//
// Cost for P = 2^d - 1: (d-1)(2 alpha + 4 beta n + 2 gamma n). Wins nowhere: nothing is pipelined.
// Rank 0 alone makes the result, so all ranks get the same bits.
//
// Not part of the library: an algorithm as anybody may add it, in this file and the lines that
// collectives/ADDING.md names.
#include "collectives/dense/tree_cost.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

constexpr std::uint32_t up = 0;
constexpr std::uint32_t down = 1;

// What the children have lent, added to the own vector, in recv once the fence is reached.
Fence add_children(Call& call, const CollectiveArgs& args, std::span<Borrowed> lent) {
  Fence added;
  const std::byte* have = args.send.data;
  for (Borrowed& one : lent) {
    added = reduce(call, args, args.recv, have, one.data);
    call.give_back(one, added);
    have = args.recv.data;
  }
  return added;
}

}  // namespace

Task<Error> allreduce_naive_tree(Call& call, CollectiveArgs args) {
  const TreeNode node = pre_order_tree(call.rank(), call.size());
  std::array<Borrowed, 2> lent;
  std::size_t children = 0;
  for (const int child : node.children) {
    if (child < 0) continue;
    Expected<Borrowed> sum = co_await call.borrow(child, 0, up, args.send.size);
    if (!sum) co_return sum.error();
    lent[children++] = std::move(*sum);
  }
  Fence ready = add_children(call, args, std::span(lent).first(children));

  if (node.parent < 0) {
    if (children == 0) ready = copy(call, args.recv, args.send);  // the only rank
    ready = finish(call, args, args.recv, ready);
  } else {
    const Bytes sum = children == 0 ? args.send : args.recv;
    Error error = co_await call.send(node.parent, 0, up, sum, ready);
    if (error) co_return error;
    error = co_await call.recv(node.parent, 0, down, args.recv);
    if (error) co_return error;
    ready = {};
  }
  for (const int child : node.children) {
    if (child < 0) continue;
    Error error = co_await call.send(child, 0, down, args.recv, ready);
    if (error) co_return error;
  }
  co_await call.until(ready);
  co_return Error();
}

double allreduce_naive_tree_cost(const Shape& shape, const LinkCost& link) {
  const auto n = static_cast<double>(shape.bytes);
  return sum_time(pre_order_tree, 0, shape.ranks, link, n) +
         spread_time(pre_order_tree, 0, shape.ranks, link, n);
}

}  // namespace pith
