#include "api/reduction_ops.hpp"

#include <atomic>

namespace pith::api {

pithRedOp_t ReductionOps::add(DType type, const Factor& factor) {
  static std::atomic<int> next{op_count};
  const int op = next.fetch_add(1, std::memory_order_relaxed);
  made_.emplace(op, PreMulSum{type, factor});
  return static_cast<pithRedOp_t>(op);
}

}  // namespace pith::api
