#include "collectives/sparse/dense_sum.hpp"

#include "collectives/algorithm.hpp"

namespace pith {

Task<Error> sum_by(Call& call, const SparseCall& args, const Algorithm& algorithm, Bytes send,
                   Bytes recv, std::uint16_t first_lane) {
  CollectiveArgs dense;
  dense.send = send;
  dense.recv = recv;
  dense.count = send.size / sizeof(float);
  dense.type = DType::f32;
  dense.tuning.chunk_bytes = args.chunk_bytes;
  Call part(call, first_lane);
  Error error = co_await algorithm.run(part, dense);
  const auto others = static_cast<std::uint64_t>(call.size() - 1);
  const std::uint64_t bytes = 2 * send.size * others / (others + 1);
  args.traffic->sent += bytes;
  args.traffic->received += bytes;
  co_return error;
}

Task<Error> sum_densely(Call& call, const SparseCall& args, Bytes values,
                        std::uint16_t first_lane) {
  const bool tree = args.spec().reduction == Reduction::tree;
  const Algorithm* algorithm = find_algorithm(Collective::allreduce, tree ? "double_tree" : "ring");
  co_return co_await sum_by(call, args, *algorithm, values, values, first_lane);
}

}  // namespace pith
