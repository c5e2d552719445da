// alltoall_perf: every rank gets a part of every rank's vector.
#include "perf_main.hpp"

namespace {

using namespace pith_perf;

Counts counts(std::size_t count, std::size_t unit, std::size_t ranks) {
  const std::size_t part = part_of(count, unit, ranks);
  return {part * ranks, part * ranks, part};
}

double bus_factor(double ranks) { return (ranks - 1) / ranks; }

std::vector<Block> expected(const Place& place) {
  std::vector<Block> blocks;
  blocks.reserve(static_cast<std::size_t>(place.ranks));
  const std::size_t mine = static_cast<std::size_t>(place.rank) * place.count;
  for (int rank = 0; rank < place.ranks; ++rank) {
    blocks.push_back({static_cast<std::size_t>(rank) * place.count, place.count, rank, mine});
  }
  return blocks;
}

pithResult_t call(const CallArgs& args) {
  return pithAlltoAll(args.send, args.recv, args.count, args.type, args.comm, nullptr);
}

pithResult_t compressed_call(const CallArgs& args, pithCompressor_t compressor) {
  return pithAlltoAllCompressed(args.send, args.recv, args.count, args.type, compressor, args.comm,
                                nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return perf_main(argc, argv,
                   {.program = "alltoall_perf",
                    .name = "alltoall",
                    .in_place = false,
                    .counts = counts,
                    .bus_factor = bus_factor,
                    .expected = expected,
                    .call = call,
                    .compressed_call = compressed_call});
}
