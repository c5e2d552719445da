// ARC-Top-K: rows of matrices that a sketch of the sum elects, so that no index travels [Chen et
// al., "An All-Reduce Compatible Top-K Compressor for Communication-Efficient Distributed
// Learning", arXiv 2510.26709, algorithm 1].
//
//   sketch = matrix * right^T     right is drawn anew in each call, the same on all ranks;
//                                 sketches are summed over the ranks
//   rows   = those of the k largest norms in the sum of the sketches
//   result = sum over the ranks of these rows; a rank's other rows are its residual
//
// The norm of a row of the sketch estimates that of the sum's row, however the ranks' parts of it
// cancel, which no rank could tell from its own. What is too small for a sketch to be worth while
// is sent whole, as the authors' program does with vectors. There are two messages, for all tensors
// of a group together, and both sums are made in rank order by one rank for all (value_sum.hpp):
// all ranks elect by the same bits.
//
// The authors scale sketches by 1/sqrt(columns) and by 1/N, which changes no order, and let one
// rank draw a seed for all, where here the spec's has to be the same. Their right factors are
// normal; these nearly are, and have the same bits on all CPUs (low_rank/factors.hpp). Their
// momentum with feedback (EF21M, eq. 11) is an optimizer's and is not part of it; the residual is
// their program's "ef14".
//
//   add gradients, sketch them while they are in the cache > sum sketches > take rows > sum values
//
// Cost: arc_topk_cost.hpp.
#include <algorithm>
#include <numeric>

#include "collectives/lists/value_sum.hpp"
#include "collectives/scratch_span.hpp"
#include "collectives/sparse/common_elements.hpp"
#include "collectives/sparse/factors/add_projected.hpp"
#include "collectives/sparse/factors/shared_floats.hpp"
#include "collectives/sparse/sketched/row_election.hpp"
#include "collectives/sparse/take_values.hpp"
#include "compress/low_rank/elected_rows.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

constexpr std::uint16_t sketch_lane = 2;                // behind those of the values
constexpr std::size_t in_cache = std::size_t{1} << 15;  // elements

// Of all tensors together.
struct Counts {
  std::size_t sketch = 0;
  std::size_t right = 0;
  std::size_t most_rows = 0;  // of a matrix
};

Counts counts_of(const SparseCall& args) {
  Counts all;
  for (const CompressedTensor& tensor : args.tensors) {
    const LowRankLayout& layout = *tensor.compressor->low_rank.layout;
    all.sketch += row_counts(layout, args.spec().density).sketch;
    all.right += layout.right_count();
    for (const LowRankPart& part : layout.parts()) {
      if (part.is_factored()) all.most_rows = std::max(all.most_rows, part.shape.rows);
    }
  }
  return all;
}

struct SketchCall {
  SketchCall(Call& call, const SparseCall& sparse)
      : args(sparse),
        counts(counts_of(sparse)),
        queue(sparse.queue(call)),
        sketches(queue, counts.sketch),
        right(queue, counts.right) {}
  SketchCall(const SketchCall&) = delete;
  SketchCall& operator=(const SketchCall&) = delete;

  const SparseCall& args;
  const Counts counts;
  const VectorQueue queue;
  const SharedFloats sketches;
  const SharedFloats right;
};

void draw_right_factors(const SketchCall& sketch) {
  float* at = sketch.right.host();
  for (std::size_t t = 0; t < sketch.args.tensors.size(); ++t) {
    const Compressor& compressor = *sketch.args.tensors[t].compressor;
    const LowRankLayout& layout = *compressor.low_rank.layout;
    const std::uint64_t key = mix(mix(mix(0, compressor.spec().seed), compressor.step), t);
    draw_right(layout, key, at);
    at += layout.right_count();
  }
  sketch.right.to_device(sketch.queue);
}

Task<Error> sketch_all(Call& call, const SketchCall& sketch) {
  const float* right = sketch.right.near();
  float* out = sketch.sketches.near();
  for (const CompressedTensor& tensor : sketch.args.tensors) {
    Compressor& compressor = *tensor.compressor;
    const LowRankLayout& layout = *compressor.low_rank.layout;
    for (const LowRankPart& part : layout.parts()) {
      Task<Error> adding =
          part.is_factored()
              ? add_projected(call, sketch.args, sketch.queue, compressor, part, right + part.right,
                              out)
              : add_in_turns(call, sketch.args, compressor, {part.begin, part.count});
      Error error = co_await std::move(adding);
      if (error) co_return error;
      out += part.shape.rows * part.shape.rank;
    }
    right += layout.right_count();
  }
  co_await sketch.queue.until(sketch.sketches.to_host(sketch.queue));
  co_return Error();
}

Task<Error> sum_sketches(Call& call, const SketchCall& sketch) {
  if (sketch.counts.sketch == 0) co_return Error();
  const std::size_t count = sketch.counts.sketch;
  const ValuePart all{nullptr, nullptr, count};
  ValueSum sum;
  sum.values = reinterpret_cast<std::byte*>(sketch.sketches.host());
  sum.count = count;
  sum.parts = {&all, 1};
  sum.lane = sketch_lane;
  co_return co_await sum_values(call, sum, *sketch.args.traffic);
}

// Where the rows of one matrix after another are elected.
class RowElection {
 public:
  RowElection(Compute& host, std::size_t most_rows)
      : host_(host),
        most_(std::max<std::size_t>(most_rows, 1)),
        rows_(host, most_ * sizeof(std::uint32_t)),
        norms_(host, most_ * sizeof(float)) {}

  // The elected rows, ascending, until the next call.
  std::span<const std::uint32_t> elect(const FactorShape& shape, const float* sketch,
                                       double density) const {
    const std::size_t k = elected_of(density, shape.rows);
    const auto rows = span_of<std::uint32_t>(rows_, most_);
    elect_rows(host_, {sketch, shape.rows * shape.rank}, shape.rank, k, rows,
               span_of<float>(norms_, most_));
    return rows.first(k);
  }

 private:
  Compute& host_;
  std::size_t most_;
  Scratch rows_;
  Scratch norms_;
};

std::uint32_t* write_range(std::uint32_t* at, std::size_t begin, std::size_t count) {
  std::iota(at, at + count, static_cast<std::uint32_t>(begin));
  return at + count;
}

// Writes the indices of what this call takes of a tensor behind its pairs, and returns their
// number.
std::size_t write_elected(Compressor& compressor, const RowElection& election, const float* sums) {
  const LowRankLayout& layout = *compressor.low_rank.layout;
  const double density = compressor.spec().density;
  const std::size_t all = row_counts(layout, density).elements;
  compressor.taken().reserve(all);
  std::uint32_t* at = compressor.taken().indices(compressor.taken().count());
  for (const LowRankPart& part : layout.parts()) {
    if (!part.is_factored()) {
      at = write_range(at, part.begin, part.count);
      continue;
    }
    const auto [rows, columns, numbers] = part.shape;
    for (const std::uint32_t row : election.elect(part.shape, sums, density)) {
      at = write_range(at, part.begin + row * columns, columns);
    }
    sums += rows * numbers;
  }
  return all;
}

Task<Error> take_elected(Call& call, const SketchCall& sketch) {
  const RowElection election(call.host_compute(), sketch.counts.most_rows);
  const float* sums = sketch.sketches.host();
  for (const CompressedTensor& tensor : sketch.args.tensors) {
    Compressor& compressor = *tensor.compressor;
    for (std::size_t left = write_elected(compressor, election, sums); left > 0;) {
      const std::size_t some = sketch.queue.on_device() ? left : std::min(left, in_cache);
      compressor.taken().reserve(left);  // of the run: the rest has its place
      double squares = 0;
      Error error = co_await take_values(call, sketch.args, compressor, some, squares);
      if (error) co_return error;
      left -= some;
      co_await call.turn();
    }
    sums += row_counts(*compressor.low_rank.layout, compressor.spec().density).sketch;
  }
  co_return Error();
}

}  // namespace

Task<Error> allreduce_arc_topk(Call& call, SparseCall args) {
  const SketchCall sketch(call, args);
  draw_right_factors(sketch);
  Error error = co_await sketch_all(call, sketch);
  if (!error) error = co_await sum_sketches(call, sketch);
  if (!error) error = co_await take_elected(call, sketch);
  if (!error) error = co_await sum_taken(call, args);
  co_return error;
}

}  // namespace pith
