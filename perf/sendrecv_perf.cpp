// sendrecv_perf: every rank sends to the next one and receives from the one before.
#include "perf_main.hpp"

namespace {

using namespace pith_perf;

Counts counts(std::size_t count, std::size_t, std::size_t) { return {count, count, count}; }

double bus_factor(double) { return 1; }

std::vector<Block> expected(const Place& place) {
  return {{0, place.count, (place.rank + place.ranks - 1) % place.ranks, 0}};
}

pithResult_t call(const CallArgs& args) {
  const int ranks = args.place.ranks;
  const int next = (args.place.rank + 1) % ranks;
  const int before = (args.place.rank + ranks - 1) % ranks;
  pithResult_t result = pithGroupStart();
  if (result != pithSuccess) return result;
  result = pithSend(args.send, args.count, args.type, next, args.comm, nullptr);
  if (result == pithSuccess) {
    result = pithRecv(args.recv, args.count, args.type, before, args.comm, nullptr);
  }
  const pithResult_t ended = pithGroupEnd();
  return result != pithSuccess ? result : ended;
}

}  // namespace

int main(int argc, char** argv) {
  return perf_main(argc, argv,
                   {.program = "sendrecv_perf",
                    .name = "point_to_point",
                    .in_place = false,
                    .counts = counts,
                    .bus_factor = bus_factor,
                    .expected = expected,
                    .call = call});
}
