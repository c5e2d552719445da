// Allreduce of matrices as atoms that are drawn without bias: singular values with their vectors
// [Wang et al., "ATOMO: Communication-efficient Learning via Atomic Sparsification", NeurIPS 2018].
//
//   add > sum what is in no matrix > decompose, draw > numbers of atoms > atoms > multiply, write
//
// Every rank decomposes its own matrices and keeps atom i with probability p_i, divided by it, see
// keep_probabilities(). All ranks add up the atoms of all in rank order, so the result has the same
// bits everywhere, whatever each rank's decomposition rounds. What has too few elements for factors
// is summed by a dense allreduce.
//
// The whole accumulator counts as delivered, and nothing is kept. A rank that finds its gradient
// not finite adds NaN to a number behind the dense sum, and all ranks deliver NaN. A matrix is
// decomposed without a pause, in which nothing else of its communicator proceeds; how long that
// takes: spectrum.hpp.
//
// Cost: atomo_cost.hpp; P - 1 times as many atoms as a rank draws arrive at each rank, so that it
// wins against a dense sum where m x n elements are many more than P rank (m + n), and where the
// link takes longer for them than a core for the decomposition.
#include <algorithm>
#include <limits>

#include "collectives/algorithm.hpp"
#include "collectives/chooser.hpp"
#include "collectives/sparse/dense_result.hpp"
#include "collectives/sparse/dense_sum.hpp"
#include "collectives/sparse/factors/gathered_atoms.hpp"
#include "collectives/sparse/factors/put_product.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/strands.hpp"
#include "compress/thresholds/draw_key.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

constexpr std::uint16_t rest_lanes = 0;

std::span<const LowRankPart> parts_of(const CompressedTensor& tensor) {
  return tensor.compressor->low_rank.layout->parts();
}

// The elements of all tensors that are in no matrix, one behind another, and a number that tells of
// bad gradients.
class Rest {
 public:
  Rest(Call& call, const SparseCall& args) {
    for_each(args, [&](const CompressedTensor&, const LowRankPart& part) { count_ += part.count; });
    memory_ = Scratch(call.host_compute(), (count_ + 1) * sizeof(float));
  }
  float* values() const { return reinterpret_cast<float*>(memory_.bytes().data); }
  float& flag() const { return values()[count_]; }
  Bytes message() const { return {memory_.bytes().data, (count_ + 1) * sizeof(float)}; }

  template <class Each>
  static void for_each(const SparseCall& args, const Each& each) {
    for (const CompressedTensor& tensor : args.tensors) {
      for (const LowRankPart& part : parts_of(tensor)) {
        if (!part.is_factored()) each(tensor, part);
      }
    }
  }

 private:
  std::size_t count_ = 0;
  Scratch memory_;
};

Task<Error> add_all(Call& call, const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) {
    Error error = co_await add_in_turns(call, args, *tensor.compressor, {0, tensor.count});
    if (error) co_return error;
  }
  co_return Error();
}

// `is_bad`: some rank's gradient is not finite.
Task<Error> sum_rest(Call& call, const SparseCall& args, const Rest& rest, bool& is_bad) {
  float* to = rest.values();
  Rest::for_each(args, [&](const CompressedTensor& tensor, const LowRankPart& part) {
    to = std::copy_n(tensor.compressor->accumulator() + part.begin, part.count, to);
  });
  const bool poisoned = found_nonfinite(args) && !args.spec().drops_nonfinite;
  rest.flag() = poisoned ? std::numeric_limits<float>::quiet_NaN() : 0;
  if (call.size() > 1) {
    const Bytes message = rest.message();
    const Algorithm& algorithm = call.chooser().algorithm(Collective::allreduce, message.size);
    Task<Error> summing = sum_by(call, args, algorithm, message, message, rest_lanes);
    Error error = co_await std::move(summing);
    if (error) co_return error;
  }
  is_bad = rest.flag() != 0;  // as NaN is
  co_return Error();
}

std::vector<FactorShape> shapes_of(const SparseCall& args) {
  std::vector<FactorShape> shapes;
  for (const CompressedTensor& tensor : args.tensors) {
    for (const LowRankPart& part : parts_of(tensor)) {
      if (part.is_factored()) shapes.push_back(part.shape);
    }
  }
  return shapes;
}

Task<Error> draw_atoms(Call& call, const SparseCall& args, AtomList& own) {
  AtomDraw draw;
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    Compressor& compressor = *args.tensors[t].compressor;
    const std::uint64_t key = draw_key(args.spec().seed, compressor.step, t, call.callers_rank());
    for (const LowRankPart& part : parts_of(args.tensors[t])) {
      if (!part.is_factored()) continue;
      const float* const elements = compressor.accumulator() + part.begin;
      Error error = draw.append(elements, part.shape, mix(key, part.begin), own);
      if (error) co_return fail_here(call, error);
      co_await call.turn();
    }
  }
  co_return Error();
}

Task<Error> put_results(Call& call, const SparseCall& args, const Rest& rest,
                        GatheredAtoms& atoms) {
  const VectorQueue queue = args.queue(call);
  const float* from = rest.values();
  for (const CompressedTensor& tensor : args.tensors) {
    ResultWriter writer(call, tensor);
    for (const LowRankPart& part : parts_of(tensor)) {
      if (!part.is_factored()) {
        put_all(call, tensor, writer, {part.begin, part.count},
                reinterpret_cast<const std::byte*>(from), DType::f32);
        from += part.count;
        continue;
      }
      const GatheredAtoms::Factors factors = atoms.next();
      const ResultMatrix matrix{part.begin, factors.shape, factors.left, factors.right};
      Task<Error> putting = put_product(call, queue, tensor, matrix, writer);
      Error error = co_await std::move(putting);
      if (error) co_return error;
    }
    args.conclude(tensor, writer);
    tensor.compressor->stats.selected_union = tensor.count;
  }
  co_return Error();
}

}  // namespace

Task<Error> allreduce_atomo(Call& call, SparseCall args) {
  for (const CompressedTensor& tensor : args.tensors) tensor.compressor->make_room_for_whole();
  const Rest rest(call, args);
  bool is_bad = false;
  Error error = co_await add_all(call, args);
  if (!error) error = co_await sum_rest(call, args, rest, is_bad);
  if (error) co_return error;
  if (is_bad) {
    deliver_nan(call, args);
    co_return error;
  }
  AtomList own;
  error = co_await draw_atoms(call, args, own);
  if (error) co_return error;
  GatheredAtoms atoms(call, shapes_of(args), std::move(own));
  Task<Error> gathering = gather_atoms(call, args, atoms);
  error = co_await std::move(gathering);
  if (!error) error = co_await put_results(call, args, rest, atoms);
  if (error) co_return error;
  for (const CompressedTensor& tensor : args.tensors) tensor.compressor->take_all();
  co_return error;
}

}  // namespace pith
