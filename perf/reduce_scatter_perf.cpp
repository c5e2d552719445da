// reduce_scatter_perf: every rank gets its part of the reduction.
#include "perf_main.hpp"

namespace {

using namespace pith_perf;

Counts counts(std::size_t count, std::size_t unit, std::size_t ranks) {
  const std::size_t part = part_of(count, unit, ranks);
  return {part * ranks, part, part, 0, part};
}

double bus_factor(double ranks) { return (ranks - 1) / ranks; }

std::vector<Block> expected(const Place& place) {
  const std::size_t first = static_cast<std::size_t>(place.rank) * place.count;
  return {{0, place.count, Block::all_ranks, first}};
}

pithResult_t call(const CallArgs& args) {
  return pithReduceScatter(args.send, args.recv, args.count, args.type, args.op, args.comm,
                           nullptr);
}

pithResult_t compressed_call(const CallArgs& args, pithCompressor_t compressor) {
  return pithReduceScatterCompressed(args.send, args.recv, args.count, args.type, args.op,
                                     compressor, args.comm, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return perf_main(argc, argv,
                   {.program = "reduce_scatter_perf",
                    .name = "reduce_scatter",
                    .has_op = true,
                    .counts = counts,
                    .bus_factor = bus_factor,
                    .expected = expected,
                    .call = call,
                    .compressed_call = compressed_call});
}
