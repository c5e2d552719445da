// reduce_perf: the root gets the reduction of all vectors.
#include "perf_main.hpp"

namespace {

using namespace pith_perf;

Counts counts(std::size_t count, std::size_t, std::size_t) { return {count, count, count}; }

double bus_factor(double) { return 1; }

std::vector<Block> expected(const Place& place) {
  if (place.rank != place.root) return {};
  return {{0, place.count, Block::all_ranks, 0}};
}

pithResult_t call(const CallArgs& args) {
  return pithReduce(args.send, args.recv, args.count, args.type, args.op, args.place.root,
                    args.comm, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return perf_main(argc, argv,
                   {.program = "reduce_perf",
                    .name = "reduce",
                    .has_op = true,
                    .has_root = true,
                    .counts = counts,
                    .bus_factor = bus_factor,
                    .expected = expected,
                    .call = call});
}
