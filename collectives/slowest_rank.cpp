#include "collectives/slowest_rank.hpp"

#include <algorithm>

#include "collectives/patterns.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

// Above those of every algorithm.
constexpr std::uint16_t lane = 0x4000;

Bytes bytes_of(double& number) { return {reinterpret_cast<std::byte*>(&number), sizeof number}; }

}  // namespace

Task<Error> run_and_tell(Call& call, CollectiveArgs args, const Algorithm& algorithm, int to) {
  const std::uint64_t begun_ns = monotonic_ns();
  Error error = co_await algorithm.run(call, args);
  if (error) co_return error;
  double slowest_s = static_cast<double>(monotonic_ns() - begun_ns) * 1e-9;
  const TreeNode node = pre_order_tree(call.rank(), to, call.size());
  for (const int child : node.children) {
    if (child < 0) continue;
    double its_s = 0;
    error = co_await call.recv(child, lane, 0, bytes_of(its_s));
    if (error) co_return error;
    slowest_s = std::max(slowest_s, its_s);
  }
  if (args.plan.slowest_s) *args.plan.slowest_s = slowest_s;
  if (node.parent < 0) co_return error;
  co_return co_await call.send(node.parent, lane, 0, bytes_of(slowest_s));
}

}  // namespace pith
