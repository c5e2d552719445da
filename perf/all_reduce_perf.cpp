// all_reduce_perf: every rank gets the reduction of all vectors.
#include "perf_main.hpp"

namespace {

using namespace pith_perf;

Counts counts(std::size_t count, std::size_t, std::size_t) { return {count, count, count}; }

// Each of n parts is sent n - 1 times to be reduced and n - 1 times to be distributed.
double bus_factor(double ranks) { return 2 * (ranks - 1) / ranks; }

std::vector<Block> expected(const Place& place) { return {{0, place.count, Block::all_ranks, 0}}; }

pithResult_t call(const CallArgs& args) {
  return pithAllReduce(args.send, args.recv, args.count, args.type, args.op, args.comm, nullptr);
}

pithResult_t compressed_call(const CallArgs& args, pithCompressor_t compressor) {
  return pithAllReduceCompressed(args.send, args.recv, args.count, args.type, args.op, compressor,
                                 args.comm, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return perf_main(argc, argv,
                   {.program = "all_reduce_perf",
                    .name = "allreduce",
                    .has_op = true,
                    .keeps_residual = true,
                    .counts = counts,
                    .bus_factor = bus_factor,
                    .expected = expected,
                    .call = call,
                    .compressed_call = compressed_call});
}
