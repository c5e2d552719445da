// Two-shot allreduce: rank r reduces block r of all vectors, then every rank gets the result.
//
//   shot 1: block r of all P vectors -> rank r        shot 2: reduced block r -> all ranks
//
// Each pair of ranks does what its own two buffers allow. Memory in reach of load and store: blocks
// are read in place, and results are stored straight into the peers' buffers. Memory that can only
// be copied: block owners fetch the inputs chunk by chunk and copy the results back, without waking
// the peer. Otherwise chunks go by messages, so that reducing overlaps the wire; those of two
// ranks that share memory go as in the ring. Where a device's kernels reach all buffers, one kernel
// does both shots of a block.
// Cost by messages, one chunk a block, where no ranks share memory: 2 alpha + (P-1)(2
// beta + gamma) n/P. Wins from some KiB on among few ranks. Operands are taken in rank order, of a
// pair in either: all ranks get the same bits. Needs: P <= 32.
#include <cmath>

#include "collectives/dense/shot.hpp"
#include "collectives/registry.hpp"

namespace pith {

namespace {

constexpr std::uint16_t result_lane = Shot::input_lane + 1;

// Shot 2, receiver: the blocks whose owners cannot store into this rank's recv.
Task<Error> take_results(Call& call, const Shot& shot) {
  const std::uint32_t most = shot.chunks(0);
  for (std::uint32_t k = 0; k < most; ++k) {
    for (int d = 1; d < shot.ranks; ++d) {
      const int from = wrap(call.rank() - d, shot.ranks);
      if (shot.handles[from].sees_recv || k >= shot.chunks(from)) continue;
      const Bytes into = part(shot.args.recv, shot.args.type, shot.piece(from, k));
      Error error = co_await call.recv(from, result_lane, k, into);
      if (error) co_return error;
    }
  }
  co_return Error();
}

// Where a kernel stores the result of `range` at once: this rank's recv, and that of the peers
// whose buffers kernels reach.
std::span<std::byte* const> find_outputs(const Call& call, const Shot& shot, Range range,
                                         std::span<std::byte*> outputs) {
  std::size_t used = 0;
  outputs[used++] = shot.at(shot.args.recv.data, range);
  for (int d = 1; d < shot.ranks; ++d) {
    const PeerHandles& theirs = shot.handles[wrap(call.rank() + d, shot.ranks)];
    if (theirs.recv && !theirs.copies_only) outputs[used++] = shot.at(theirs.recv, range);
  }
  return outputs.first(used);
}

// Reduces `range` of all inputs into all outputs in reach.
Fence reduce_range(Call& call, const Shot& shot, Range range,
                   std::span<const std::byte* const> inputs) {
  constexpr std::size_t streaming_bytes = std::size_t{8} << 20;
  std::array<std::byte*, most_view_ranks> outputs;
  const bool streaming = shot.ranks == 2 && shot.args.recv.size >= streaming_bytes;
  return reduce_all_ranks(call, shot.args, find_outputs(call, shot, range, outputs),
                          inputs.first(static_cast<std::size_t>(shot.ranks)), range.size,
                          streaming);
}

// Both shots of this rank's block, by one kernel.
Task<Error> reduce_on_device(Call& call, const Shot& shot) {
  const Range own = shot.block_of(call.rank());
  if (own.size == 0) co_return Error();
  std::array<const std::byte*, most_view_ranks> inputs;
  find_inputs(call, shot, own, inputs);
  co_await call.until(reduce_range(call, shot, own, inputs));
  co_return Error();
}

// Writes the result into a peer's recv by the host, where kernels do not reach it.
Error put_result(const Call& call, const Shot& shot, int to, Range range, Bytes result) {
  const PeerHandles& theirs = shot.handles[to];
  if (!theirs.recv) return call.copy_to(to, shot.far(theirs.far_recv, range), result);
  call.host_compute().run<CopyKernel>({shot.at(theirs.recv, range), result.data, result.size});
  return {};
}

// This rank's block, chunk by chunk: shot 1 as receiver, shot 2 as sender.
Task<Error> reduce_own_block(Call& call, const Shot& shot) {
  Error heard = co_await shot.handles.hear();
  if (heard) co_return heard;
  if (shot.handles.all_on_device()) {
    co_return co_await reduce_on_device(call, shot);
  }
  const CollectiveArgs& args = shot.args;
  const int p = shot.ranks;
  const Scratch fetched = shot.room_for_fetched(call);
  Leases leases;
  std::array<const std::byte*, most_view_ranks> inputs;
  for (std::uint32_t k = 0; k < shot.chunks(call.rank()); ++k) {
    const Range range = shot.piece(call.rank(), k);
    const Bytes out = part(args.recv, args.type, range);
    Error taken = co_await take_inputs(call, shot, k, fetched.bytes(), leases, inputs);
    if (taken) co_return taken;
    Fence reduced = reduce_range(call, shot, range, inputs);
    leases.give_back(call, reduced);
    // Nothing here suspends where all memory is in reach: yield to other work, and see an abort.
    constexpr std::uint32_t pieces_a_turn = 16;
    if (k % pieces_a_turn == pieces_a_turn - 1) {
      co_await call.turn();
      if (call.comm().revoked) co_return call.comm().revoked;
    }
    for (int d = 1; d < p; ++d) {
      const int to = wrap(call.rank() + d, p);
      const PeerHandles& theirs = shot.handles[to];
      if (theirs.recv && !theirs.copies_only) continue;  // stored by the kernel
      if (!theirs.recv && theirs.far_recv == 0) {
        Error error = co_await call.send(to, result_lane, k, out, reduced);
        if (error) co_return error;
        continue;
      }
      Bytes result = out;
      if (theirs.copies_only) {
        result = fetched.bytes().part(static_cast<std::size_t>(to) * shot.chunk_bytes(), out.size);
        reduced = copy(call, result, out);
      }
      co_await call.until(reduced);
      Error error = put_result(call, shot, to, range, result);
      if (error) co_return error;
    }
    co_await call.until(reduced);
  }
  co_return Error();
}

Task<Error> run_strands(Call& call, const Shot& shot) {
  // Both ranks of a pair know whether all goes by messages, as in the ring, which keeps fewer on
  // the way.
  if (call.size() == 2 && call.views()) {
    Error error = co_await shot.handles.hear();
    if (error) co_return error;
    if (!shot.handles.any()) co_return co_await allreduce_ring(call, shot.args);
  }
  std::array<Task<Error>, 3> strands;
  std::size_t used = 0;
  if (shot.handles.hides_send()) strands[used++] = give_inputs(call, shot);
  strands[used++] = reduce_own_block(call, shot);
  if (shot.handles.hides_recv()) strands[used++] = take_results(call, shot);
  co_return co_await when_all(std::span(strands).first(used));
}

}  // namespace

Task<Error> allreduce_two_shot(Call& call, CollectiveArgs args) {
  HandleExchange handles(call, args.send, args.recv, copies_of(args.tuning));
  Shot shot{args, handles, {}, chunk_elements(args.tuning, args.type), call.size()};
  const Blocks blocks(args.count, call.size());
  for (int r = 0; r < call.size(); ++r) shot.blocks[static_cast<std::size_t>(r)] = blocks[r];
  co_return co_await handles.around(run_strands(call, shot));
}

double allreduce_two_shot_cost(const Shape& shape, const LinkCost& link) {
  const double peers = shape.ranks - 1;
  const double per_block = static_cast<double>(shape.bytes) / shape.ranks;
  const double chunk = std::min(per_block, static_cast<double>(shape.tuning.chunk_bytes));
  const double chunks = std::max(1.0, std::ceil(per_block / chunk));
  const double wire = peers * link.beta * chunk;
  const double work = peers * link.gamma * chunk;
  const double starts = 2 * (link.alpha + (peers - 1) * link.message);
  const double one_chunk = starts + 2 * wire + work;
  return one_chunk + (chunks - 1) * std::max(2 * wire, work);
}

}  // namespace pith
