// An all-reduce that spoils one element on the last rank: what the perf programs have to notice.
#include "perf/perf_main.hpp"

namespace {

using namespace pith_perf;

Counts counts(std::size_t count, std::size_t, std::size_t) { return {count, count, count}; }

double bus_factor(double ranks) { return 2 * (ranks - 1) / ranks; }

std::vector<Block> expected(const Place& place) { return {{0, place.count, Block::all_ranks, 0}}; }

pithResult_t call(const CallArgs& args) {
  const pithResult_t result =
      pithAllReduce(args.send, args.recv, args.count, args.type, args.op, args.comm, nullptr);
  const bool last = args.place.rank == args.place.ranks - 1;
  if (last && args.count > 0) *static_cast<unsigned char*>(args.recv) ^= 1;
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  return perf_main(argc, argv,
                   {.program = "faulty_perf",
                    .name = "allreduce",
                    .has_op = true,
                    .counts = counts,
                    .bus_factor = bus_factor,
                    .expected = expected,
                    .call = call});
}
