// An abort at every step of every algorithm: all ranks end, nothing is held, no buffer is touched
// after its rank's call has returned, and the next communicator works.
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "tests/catch.hpp"
#include "tests/collectives/algorithm_conformance.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/one_case.hpp"
#include "tests/sanitized.hpp"
#include "tests/sim/world.hpp"

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
  c.op = possible_op(algorithm.collective, c.type, which % 2 == 0 ? Op::sum : Op::avg);
  c.root = ranks - 1;
  c.in_place = which >= 2;
  c.premultiplied = which == 2 && reduces(algorithm.collective);
  return c;
}

// How the ranks reach each other's memory: all by load and store, all by copies, or each pair, each
// way, in a way of its own or by messages.
constexpr int reaches = 3;
MemoryHandle::Reach reach(int which, int owner, int peer) {
  if (which == 0) return MemoryHandle::Reach::load_store;
  if (which == 1) return MemoryHandle::Reach::copy;
  constexpr std::array mixed{MemoryHandle::Reach::load_store, MemoryHandle::Reach::none,
                             MemoryHandle::Reach::copy};
  return mixed[static_cast<std::size_t>(2 * owner + peer) % mixed.size()];
}

// Where nothing goes by messages, there is a turn after 16 chunks of a block.
DenseCase case_over_views(const Algorithm& algorithm, int ranks, int how, int which) {
  DenseCase c = small_case(algorithm, ranks, which);
  if (how == 2) return c;
  c.tuning = {8, 1};
  const bool whole = algorithm.collective == Collective::allreduce;
  c.count = static_cast<std::size_t>(whole ? 18 * ranks + 1 : 37);
  return c;
}

// Every step; beside a sanitizer, where each takes ten times as long, every fifth one of a case,
// which one that begins with depends on the case. PITH_TEST_FULL=1 takes every step there too.
AbortOptions steps_of(const DenseCase& c) {
  AbortOptions options;
  if (!sanitized || std::getenv("PITH_TEST_FULL")) return options;
  options.stride = 5;
  options.first = (static_cast<std::uint64_t>(c.ranks) + (c.in_place ? 1 : 0)) % options.stride;
  return options;
}

// How many aborts there were.
std::uint64_t abort_everywhere(const DenseCase& c, const SimConfig& config,
                               const std::string& name) {
  if (!is_wanted(name)) return 0;
  auto make = [&c]() -> std::unique_ptr<Program> { return std::make_unique<DenseProgram>(c); };
  const AbortReport report = inject_aborts(config, make, steps_of(c));
  if (!report.failure.empty()) print_again(report.variables + this_program() + " '[abort]'", name);
  INFO(name);
  CHECK(report.failure == "");
  return report.points;
}

}  // namespace

TEST_CASE("an abort at any step of any algorithm", "[collectives][abort][conformance]") {
  for (const Algorithm& algorithm : tested_algorithms()) {
    std::uint64_t points = 0;
    for (int ranks = 2; ranks <= 5; ++ranks) {
      for (int which = 0; which < 4; ++which) {
        const DenseCase c = small_case(algorithm, ranks, which);
        const std::string name = fmt::format("{}, simulator {}", describe(c), which);
        points += abort_everywhere(c, simulator(ranks, which), name);
      }
    }
    INFO(algorithm.name);
    CHECK((points > 50 || is_alone()));
  }
}

TEST_CASE("an abort at any step over views", "[collectives][abort][views]") {
  for (const auto& [collective, algorithm] : over_views) {
    std::uint64_t points = 0;
    for (int ranks = 2; ranks <= 5; ++ranks) {
      for (int how = 0; how < reaches; ++how) {
        for (const int which : {0, 2}) {  // kernels on host memory work at once
          const DenseCase c =
              case_over_views(*find_algorithm(collective, algorithm), ranks, how, which);
          SimConfig config = simulator(ranks, which);
          config.reach = [how](int owner, int peer) { return reach(how, owner, peer); };
          const std::string name =
              fmt::format("{}, simulator {}, reach {}", describe(c), which, how);
          points += abort_everywhere(c, config, name);
        }
      }
    }
    INFO(name_of(collective) << " " << algorithm);
    CHECK((points > 50 || is_alone()));
  }
}

}  // namespace pith::test
