// all_gather_perf: every rank gets every rank's vector, in the order of ranks.
#include "perf_main.hpp"

namespace {

using namespace pith_perf;

Counts counts(std::size_t count, std::size_t unit, std::size_t ranks) {
  const std::size_t part = part_of(count, unit, ranks);
  return {part, part * ranks, part, part, 0};
}

double bus_factor(double ranks) { return (ranks - 1) / ranks; }

std::vector<Block> expected(const Place& place) {
  std::vector<Block> blocks;
  blocks.reserve(static_cast<std::size_t>(place.ranks));
  for (int rank = 0; rank < place.ranks; ++rank) {
    blocks.push_back({static_cast<std::size_t>(rank) * place.count, place.count, rank, 0});
  }
  return blocks;
}

pithResult_t call(const CallArgs& args) {
  return pithAllGather(args.send, args.recv, args.count, args.type, args.comm, nullptr);
}

pithResult_t compressed_call(const CallArgs& args, pithCompressor_t compressor) {
  return pithAllGatherCompressed(args.send, args.recv, args.count, args.type, compressor, args.comm,
                                 nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return perf_main(argc, argv,
                   {.program = "all_gather_perf",
                    .name = "allgather",
                    .counts = counts,
                    .bus_factor = bus_factor,
                    .expected = expected,
                    .call = call,
                    .compressed_call = compressed_call});
}
