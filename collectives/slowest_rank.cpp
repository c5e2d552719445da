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

// Of this rank. A run that did not begin with its first call, since choices changed in between, has
// no time.
SlowestTime time_with(const CallPlan& plan, std::size_t bytes, double seconds) {
  if (!plan.run) return {seconds, bytes};
  ToldRun& run = *plan.run;
  if (plan.place == 0) run = {};
  const bool is_next = run.calls == plan.place;
  run.add(bytes, seconds);
  return {is_next ? run.mean_s() : 0, run.bytes / run.calls};
}

}  // namespace

Task<Error> run_and_tell(Call& call, CollectiveArgs args, const Algorithm& algorithm, int to) {
  const std::uint64_t begun_ns = monotonic_ns();
  Error error = co_await algorithm.run(call, args);
  if (error) co_return error;
  const double seconds = static_cast<double>(monotonic_ns() - begun_ns) * 1e-9;
  SlowestTime slowest = time_with(args.plan, args.count * size_of(args.type), seconds);
  if (!args.plan.is_told) co_return error;
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
