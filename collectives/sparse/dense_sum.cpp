#include "collectives/sparse/dense_sum.hpp"

#include "collectives/algorithm.hpp"

namespace pith {

Task<Error> sum_densely(Call& call, const SparseCall& args, Bytes values,
                        std::uint16_t first_lane) {
  CollectiveArgs dense;
  dense.send = dense.recv = values;
  dense.count = values.size / sizeof(float);
  dense.type = DType::f32;
  dense.tuning.chunk_bytes = args.chunk_bytes;
  Call part(call, first_lane);
  const bool tree = args.spec().reduction == Reduction::tree;
  const Algorithm* algorithm = find_algorithm(Collective::allreduce, tree ? "double_tree" : "ring");
  Error error = co_await algorithm->run(part, dense);
  const auto others = static_cast<std::uint64_t>(call.size() - 1);
  const std::uint64_t bytes = 2 * values.size * others / (others + 1);
  args.traffic->sent += bytes;
  args.traffic->received += bytes;
  co_return error;
}

}  // namespace pith
