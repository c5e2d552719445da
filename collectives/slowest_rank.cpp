#include "collectives/slowest_rank.hpp"

#include <algorithm>

#include "collectives/patterns.hpp"
#include "collectives/told_run.hpp"
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
  const double seconds = static_cast<double>(monotonic_ns() - begun_ns) * 1e-9;
  SlowestTime slowest{seconds, args.count * size_of(args.type)};
  if (args.plan.run) args.plan.run->add(args.plan, slowest.bytes, seconds);
  if (!args.plan.is_told) co_return error;
  if (args.plan.run) slowest = args.plan.run->mean();
  const TreeNode node = pre_order_tree(call.rank(), to, call.size());
  for (const int child : node.children) {
    if (child < 0) continue;
    double its_s = 0;
    error = co_await call.recv(child, lane, 0, bytes_of(its_s));
    if (error) co_return error;
    slowest.seconds = std::max(slowest.seconds, its_s);
  }
  if (args.plan.slowest) *args.plan.slowest = slowest;
  if (node.parent < 0) co_return error;
  co_return co_await call.send(node.parent, lane, 0, bytes_of(slowest.seconds));
}

}  // namespace pith
