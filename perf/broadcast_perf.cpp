// broadcast_perf: every rank gets the root's vector.
#include "perf_main.hpp"

namespace {

using namespace pith_perf;

Counts counts(std::size_t count, std::size_t, std::size_t) { return {count, count, count}; }

double bus_factor(double) { return 1; }

std::vector<Block> expected(const Place& place) { return {{0, place.count, place.root, 0}}; }

pithResult_t call(const CallArgs& args) {
  return pithBroadcast(args.send, args.recv, args.count, args.type, args.place.root, args.comm,
                       nullptr);
}

pithResult_t compressed_call(const CallArgs& args, pithCompressor_t compressor) {
  return pithBroadcastCompressed(args.send, args.recv, args.count, args.type, args.place.root,
                                 compressor, args.comm, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return perf_main(argc, argv,
                   {.program = "broadcast_perf",
                    .name = "broadcast",
                    .has_root = true,
                    .counts = counts,
                    .bus_factor = bus_factor,
                    .expected = expected,
                    .call = call,
                    .compressed_call = compressed_call});
}
