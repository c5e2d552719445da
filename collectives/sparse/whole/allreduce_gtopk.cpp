// gTop-k: of the sums of two ranks' lists the k largest, of two such sums again, up a binomial
// tree; all ranks get the k pairs that its root has [Shi, Wang, Zhao, Tang, Wang, Huang, Chu, "A
// distributed synchronous SGD algorithm with global top-k sparsification for low bandwidth
// networks", ICDCS 2019].
//
//   rank 0     k largest + rank 1's > k largest + rank 2's > k largest > ranks 2, 1
//   rank 2     k largest + rank 3's > k largest > rank 0                > rank 3
//   every rank takes back what it gave at other elements than the result's
//
// What a merge drops is lost in the paper if other ranks bring the element into the result. Here it
// stays with the rank that has dropped it, as does what 16-bit values of its sums lose; where the
// element is not in the result, every rank keeps what is its own, and nobody these.
//
// The tree is one over places, so that close neighbours merge first. Each vector of a group has its
// own k, and the result that it would have alone.
// Cost: gtopk_cost() in gtopk_cost.hpp.
#include "collectives/lists/list_adder.hpp"
#include "collectives/lists/list_message.hpp"
#include "collectives/patterns.hpp"
#include "collectives/sparse/whole/largest_sums.hpp"
#include "collectives/sparse/whole/whole_lists.hpp"

namespace pith {

namespace {

constexpr std::uint32_t up = 0;
constexpr std::uint32_t down = 1;

struct Tree {
  // ListVector::memory: the pairs that have come; sums, in turn; what merges have left over.
  static constexpr std::size_t came = 0;
  static constexpr std::size_t sums[] = {1, 2};
  static constexpr std::size_t rest = 3;
  static constexpr std::size_t lists = 4;

  Tree(Call& call, const SparseCall& sparse)
      : args(sparse),
        type(sparse.spec().values),
        vectors(call, sparse, lists),
        parts{{0, line_up(vectors.all())}, ListVectors::message_elements},
        flags(found_nonfinite(sparse) ? ListHead::nonfinite : 0),
        bit(binomial_bit(call.rank(), call.size())) {
    for (const ListVector& vector : vectors.all()) vector.memory[rest].begin(DType::f32);
  }

  const SparseCall& args;
  const DType type;
  const ListVectors vectors;
  const ListParts parts;
  std::uint32_t flags;
  const int bit;   // of this rank in the binomial tree
  int merges = 0;  // so far
};

// Of the sums of the two lists the k largest become the vector's list.
void merge(Call& call, const Tree& tree, ListAdder& adder, ListVector& vector) {
  const std::size_t k = elected_of(tree.args.spec().density, vector.count);
  PairList& rest = vector.memory[Tree::rest];
  PairList& sums = vector.memory[Tree::sums[tree.merges % 2]];
  const SparseList both[] = {vector.list, all_of(vector.memory[Tree::came])};
  add_lists(adder, both, tree.type, {0, vector.count}, sums);
  const std::size_t count = sums.count();
  const Scratch memory(call.host_compute(), std::max<std::size_t>(count, 1) * sizeof(float));
  const std::span magnitudes{reinterpret_cast<std::uint32_t*>(memory.bytes().data), count};
  const auto* const values = reinterpret_cast<const float*>(sums.values());
  std::transform(values, values + count, magnitudes.begin(), magnitude_bits);
  Cut cut = cut_behind(magnitudes, k);
  reduce_to(cut, sums, &rest);
  if (tree.type != DType::f32) narrow(call, sums, tree.type, rest);
  vector.list = sums.run(0);
}

Task<Error> receive(Call& call, Tree& tree, int from, std::uint32_t step) {
  const ListTargets targets{tree.vectors.all(), Tree::came, tree.type};
  return receive_slices(call, {from, ListVectors::lane, step}, tree.parts, targets, tree.flags,
                        *tree.args.traffic);
}

Task<Error> merge_up(Call& call, Tree& tree) {
  for (int child = 1; child < tree.bit && call.rank() + child < call.size(); child *= 2) {
    Error error = co_await receive(call, tree, call.rank() + child, up);
    if (error) co_return error;
    ListAdder adder(call, 2, tree.parts.range.size);
    for (ListVector& vector : tree.vectors.all()) {
      if (vector.count > 0) merge(call, tree, adder, vector);
    }
    ++tree.merges;
    co_await call.turn();
  }
  if (call.rank() == 0) co_return Error();
  co_return co_await send_slices(call, {call.rank() - tree.bit, ListVectors::lane, up},
                                 tree.vectors.all(), tree.parts, tree.type, tree.flags,
                                 *tree.args.traffic);
}

// A message is written once for all children; the largest subtree's comes first.
Task<Error> tell_children(Call& call, Tree& tree) {
  for (std::size_t p = 0; p < tree.parts.count(); ++p) {
    const ListMessage message =
        write_slices(call, tree.vectors.all(), tree.parts[p], tree.type, tree.flags);
    for (int child = tree.bit / 2; child > 0; child /= 2) {
      if (call.rank() + child >= call.size()) continue;
      tree.args.traffic->sent += message.bytes();
      Error error =
          co_await send_lists(call, {call.rank() + child, ListVectors::lane, down}, message);
      if (error) co_return error;
    }
  }
  co_return Error();
}

Task<Error> tell_down(Call& call, Tree& tree) {
  if (call.rank() != 0) {
    Error error = co_await receive(call, tree, call.rank() - tree.bit, down);
    if (error) co_return error;
    for (ListVector& vector : tree.vectors.all()) {
      if (vector.count > 0) vector.list = all_of(vector.memory[Tree::came]);
    }
  }
  co_return co_await tell_children(call, tree);
}

// When the call has succeeded.
void keep_the_rest(Call& call, const CompressedTensor& tensor, const ListVector& vector) {
  Compressor& compressor = *tensor.compressor;
  PairList& given = compressor.taken();
  keep_pairs(call, compressor, all_of(given), given.type(), Among::others, vector.list);
  const PairList& rest = vector.memory[Tree::rest];
  for (std::size_t r = 0; r < rest.runs(); ++r) {
    keep_pairs(call, compressor, rest.run(r), DType::f32, Among::result, vector.list);
  }
}

}  // namespace

Task<Error> allreduce_gtopk(Call& call, SparseCall args) {
  Error error = co_await elect_lists(call, args);
  if (error) co_return error;
  Tree tree(call, args);
  error = co_await merge_up(call, tree);
  if (!error) error = co_await tell_down(call, tree);
  if (error) co_return error;
  if (tree.flags != 0 && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
    co_return error;
  }
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    if (args.tensors[t].count == 0) continue;
    keep_the_rest(call, args.tensors[t], tree.vectors.all()[t]);
    co_await call.turn();
  }
  put_results(call, args, tree.vectors.all(), tree.type);
  co_return error;
}

}  // namespace pith
