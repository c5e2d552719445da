// An abort at every step of every algorithm: all ranks end, nothing is held, and no buffer is
// written after its rank's call has ended.
#include "tests/catch.hpp"
#include "tests/collectives/unknown_program.hpp"

namespace pith::test {

namespace {

// Which way to go: whole messages or pieces, kernels at once or late, wires with or without room.
SimConfig simulator(int ranks, int which) {
  SimConfig config;
  config.ranks = ranks;
  config.kernel_s = 1e-7;
  config.gamma_s_per_byte = 1e-9;
  config.late_kernels = (which & 1) != 0;
  if ((which & 1) == 0) config.slot_bytes = 48;
  if ((which & 2) != 0) config.wire_bytes = 150;
  return config;
}

// Three chunks a block over two lanes; where the count is that of a block: six chunks.
DenseCase small_case(const Algorithm& algorithm, int ranks, int which) {
  DenseCase c;
  c.algorithm = &algorithm;
  c.ranks = ranks;
  c.tuning = {32, 2};
  c.count =
      static_cast<std::size_t>(algorithm.collective == Collective::allreduce ? 10 * ranks + 1 : 21);
  c.op = which % 2 == 0 ? Op::sum : Op::avg;
  c.root = ranks - 1;
  c.in_place = which >= 2;
  return c;
}

}  // namespace

TEST_CASE("an abort at any step of any algorithm", "[collectives][abort]") {
  for (const Algorithm& algorithm : algorithms()) {
    std::uint64_t points = 0;
    for (int ranks = 2; ranks <= 5; ++ranks) {
      for (int which = 0; which < 4; ++which) {
        const DenseCase c = small_case(algorithm, ranks, which);
        auto make = [&c]() -> std::unique_ptr<Program> {
          return std::make_unique<DenseProgram>(c);
        };
        const AbortReport report = inject_aborts(simulator(ranks, which), make);
        INFO(describe(c));
        CHECK(report.failure == "");
        points += report.points;
      }
    }
    INFO(algorithm.name);
    CHECK(points > 50);
  }
}

TEST_CASE("an abort at any step of the allgather of unknown lengths", "[unknown][abort]") {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (int which = 0; which < 4; ++which) {
      UnknownCase c;
      for (int rank = 0; rank < ranks; ++rank) {
        c.lengths.push_back(static_cast<std::size_t>(rank % 3) * 64 + (rank % 2 == 0 ? 40 : 0));
      }
      c.capacity = 256;
      c.in_place = which >= 2;
      auto make = [&c]() -> std::unique_ptr<Program> {
        return std::make_unique<UnknownProgram>(c);
      };
      SimConfig config = simulator(ranks, which);
      config.kernel_s = 1e-4;  // the copy of the own message outlives everything else
      const AbortReport report = inject_aborts(config, make);
      INFO(describe(c));
      CHECK(report.failure == "");
      CHECK(report.points > 10);
    }
  }
}

}  // namespace pith::test
