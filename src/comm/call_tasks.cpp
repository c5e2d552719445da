#include "comm/call_tasks.hpp"

#include "collectives/coded/coded_move.hpp"
#include "collectives/premultiply.hpp"
#include "collectives/slowest_rank.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

// A dense collective of no elements needs no peer, except a barrier. Rank 0 of an exclusive scan
// has no result.
bool moves_nothing(const CollectiveArgs& args, int ranks) {
  const bool has_result = args.count > 0 && (ranks > 1 || args.collective != Collective::exscan);
  return !has_result && args.collective != Collective::barrier;
}

Task<Error> do_nothing(Call&) { co_return Error(); }

// A logical operation of one rank.
Task<Error> take_truth(Call& call, CollectiveArgs args) {
  co_await call.until(only_operand(call, args, args.recv, args.send.data));
  co_return Error();
}

}  // namespace

void CallTasks::complete(CollectiveArgs& args) const {
  args.tuning = links_.model().tuning();
  if (args.uneven.used()) return complete_uneven(args);
  const std::size_t bytes = args.count * size_of(args.type);
  const Extent extent = extent_of(args.collective, links_.size());
  args.send.size = bytes * extent.send;
  args.recv.size = bytes * extent.recv;
}

void CallTasks::complete_uneven(CollectiveArgs& args) const {
  const UnevenBlocks& blocks = args.uneven;
  const auto rank = static_cast<std::size_t>(links_.rank());
  const std::size_t own = blocks.common()[rank].size;
  const std::size_t send = blocks.send ? end_of(blocks.send, blocks.ranks) : own;
  const std::size_t recv = blocks.recv ? end_of(blocks.recv, blocks.ranks) : own;
  args.send.size = send * size_of(args.type);
  args.recv.size = recv * size_of(args.type);
}

Task<Error> CallTasks::task_of(Call& call, const CollectiveArgs& args) {
  if (moves_nothing(args, links_.size())) return do_nothing(call);
  if (links_.size() == 1 && is_logical(args.op)) return take_truth(call, args);
  CollectiveArgs placed = args;
  placed.root = links_.order().place_of(args.root);
  if (placed.wire.is_used()) return run_coded(call, placed);
  scale_average(placed, links_.size());
  const Algorithm& algorithm = links_.model().algorithm(args);
  if (placed.plan.is_told || placed.plan.run) {
    return run_and_tell(call, placed, algorithm, links_.order().place_of(0));
  }
  if (placed.factor.used) return run_premultiplied(call, placed, algorithm);
  return algorithm.run(call, placed);
}

Task<Error> CallTasks::task_of(Call& call, const CompressedArgs& args) {
  return allreduce_compressed(call, args.tensors, args.tuning, compressed_);
}

Task<Error> CallTasks::task_of(Call& call, const PairArgs& args) {
  return exchange_messages(call, args.messages, windows_, args.chunk_bytes);
}

}  // namespace pith
