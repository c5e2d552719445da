// The same algorithms over real transports: ranks are threads, each with an engine of its own.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "core/clock.hpp"
#include "core/engine.hpp"
#include "core/heap.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/collectives/host_layouts.hpp"
#include "tests/collectives/real_ranks.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

// Sanitizers slow down the random data and its reference; every path is walked by 700 KiB as well.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr int rank_counts[] = {2, 3};
constexpr int many_ranks = 5;
#else
constexpr std::size_t most_bytes = std::size_t{4} << 20;
constexpr int rank_counts[] = {2, 3, 5};
constexpr int many_ranks = 8;
#endif

struct Named {
  std::string name;
  std::unique_ptr<DenseProgram> program;
};
using Programs = std::vector<Named>;
using Sizes = std::vector<std::size_t>;  // in bytes, of all blocks together

const Sizes all_sizes = {
    1, 8, 999, 2048, (std::size_t{64} << 10) + 1, std::size_t{700} << 10, most_bytes};
// Of many ranks, whose threads take turns.
const Sizes few_sizes = {std::size_t{700} << 10, 2048};
const Sizes short_sizes = {2048, 40000};

// Types and operations in turn: in 154 turns each type meets each operation. Every run of ranks
// begins elsewhere, so that an algorithm meets others on another link or among more ranks.
struct Turns {
  std::uint64_t last = 0;
  int link = 0;
};

// The reference goes by elements, and slowly.
constexpr std::size_t most_elements = std::size_t{1} << 19;

DenseCase case_of(const Algorithm& algorithm, int ranks, std::size_t bytes, std::uint64_t turn) {
  DenseCase c;
  c.algorithm = &algorithm;
  c.ranks = ranks;
  c.type = static_cast<DType>(turn % dtype_count);
  c.op = possible_op(algorithm.collective, c.type, static_cast<Op>(turn % op_count));
  // The rest at random, so that no type always lies in one way.
  const std::uint64_t bits = random_bits(1, turn, 0);
  c.premultiplied = c.op == Op::sum && reduces(algorithm.collective) && bits / 2 % 3 == 0;
  const Extent extent = extent_of(algorithm.collective, ranks);
  const std::size_t elements = std::min(bytes / size_of(c.type), most_elements);
  c.count = std::max<std::size_t>(elements / std::max(extent.send, extent.recv), 1);
  c.root = static_cast<int>(bits / 64 % static_cast<std::uint64_t>(ranks));
  c.in_place = bits % 2 == 0;
  c.shift = bits / 8 % 4 == 0 ? bits / 4096 % 16 : 0;
  c.tuning = {};
  c.seed = turn;
  return c;
}

// Every other rank's memory is registered. `which`: that of the algorithm and of the link, added.
// Every day a third of the sizes; the next link has another third.
Programs programs_of(const Algorithm& algorithm, int which, int ranks, const Sizes& sizes,
                     Turns& turns) {
  Programs programs;
  for (const std::size_t bytes : sizes) {
    const std::uint64_t turn = ++turns.last;
    if (!is_turn(which++, 0, 3)) continue;
    const auto odd = static_cast<int>(random_bits(2, turn, 0) % 2);
    const DenseCase c = case_of(algorithm, ranks, bytes, turn);
    const auto registered = [odd](int rank) { return rank % 2 == odd; };
    programs.push_back({describe(c), std::make_unique<DenseProgram>(c, registered)});
  }
  return programs;
}

// Rank 0 prepares and checks while the others wait.
void run_dense(RealRank& rank, Programs& shared, const Sizes& sizes, Turns& turns) {
  int which = turns.link;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == Collective::barrier) continue;
    ++which;
    if (rank.rank() == 0) shared = programs_of(algorithm, which, rank.size(), sizes, turns);
    rank.meet();
    for (const Named& one : shared) {
      rank.run([&](Call& call) { return one.program->start(call, rank.rank()); });
    }
    rank.meet();
    if (rank.rank() != 0) continue;
    for (const Named& one : shared) rank.must(one.program->check(), one.name);
  }
}

// Compressed calls by host, on hosts that are made up: everybody reaches everybody's memory, or
// nobody's.
void run_by_host(RealRank& rank, const Hosts& hosts, SparseProgram& program, SliceTwins& twins) {
  rank.set_hosts(hosts);
  for (std::uint64_t step = 0; step < 4; ++step) {
    if (rank.rank() == 0) program.draw(step);
    rank.meet();
    rank.run([&](Call& call) { return program.start(call, rank.rank()); });
    rank.meet();
    if (rank.rank() == 0) rank.must(program.same_everywhere(), "hierarchy=host");
    if (rank.rank() == 0) rank.must(twins.check(program), "hierarchy=host");
    rank.meet();
  }
}

std::string run_by_host(RealKind kind) {
  std::string failures;
  for (const char* spec :
       {"topk:density=0.05", "ar-topk:density=0.05", "exdyna:density=0.05", "deft:density=0.05"}) {
    for (const std::size_t count : {std::size_t{700}, std::size_t{300000}}) {
      SparseCase c;
      c.ranks = 5;
      c.hosts = {0, 1, 0, 1, 1};
      c.counts = {count, 0, 33};
      if (count == 700) c.counts = {count};
      c.integers = true;
      c.spec = fmt::format("{},hierarchy=host", spec);
      const Hosts hosts{std::span<const int>(c.hosts)};
      SparseProgram program(c);
      SliceTwins twins(c);
      failures += run_real(kind, c.ranks,
                           [&](RealRank& rank) { run_by_host(rank, hosts, program, twins); });
    }
  }
  return failures;
}

std::string run_all(RealKind kind, int ranks, const Sizes& sizes) {
  Programs shared;
  const int link = static_cast<int>(kind);
  Turns turns{static_cast<std::uint64_t>(13 * link + 29 * ranks), link};
  const std::string failures =
      run_real(kind, ranks, [&](RealRank& rank) { run_dense(rank, shared, sizes, turns); });
  return failures.empty() ? "" : fmt::format("{} ranks\n{}", ranks, failures);
}

// With --full any number of ranks up to 17. One rank alone asks no algorithm.
void run_all(RealKind kind) {
  for (const int ranks : rank_counts) CHECK(run_all(kind, ranks, all_sizes) == "");
  CHECK(run_all(kind, many_ranks, few_sizes) == "");
  if (!std::getenv("PITH_TEST_FULL")) return;
  for (int ranks = 2; ranks <= 17; ++ranks) CHECK(run_all(kind, ranks, short_sizes) == "");
}

}  // namespace

TEST_CASE("every algorithm over local", "[transports]") { run_all(RealKind::local); }

TEST_CASE("every algorithm over shm", "[transports]") { run_all(RealKind::shm); }

TEST_CASE("every algorithm over shm, private memory copied across processes", "[transports]") {
  run_all(RealKind::shm_copies);
}

TEST_CASE("every algorithm over tcp", "[transports]") { run_all(RealKind::tcp); }

TEST_CASE("every algorithm over tcp, encrypted", "[transports]") {
  CHECK(run_all(RealKind::tcp_encrypted, 3, all_sizes) == "");
  CHECK(run_all(RealKind::tcp_encrypted, many_ranks, few_sizes) == "");
}

TEST_CASE("every algorithm over ucx", "[transports]") {
  const UcxSupport support = ucx_support("127.0.0.1");
  if (support.why_not) {
    WARN("skipped: " << support.why_not.message());
    return;
  }
  run_all(RealKind::ucx);
}

#if defined(PITH_FAKE_VERBS)
TEST_CASE("every algorithm over verbs", "[transports]") { run_all(RealKind::verbs); }
#endif

TEST_CASE("hierarchy=host over views, copies and messages", "[transports][by-host]") {
  CHECK(run_by_host(RealKind::local) == "");
  CHECK(run_by_host(RealKind::shm) == "");
  CHECK(run_by_host(RealKind::shm_copies) == "");
  CHECK(run_by_host(RealKind::tcp) == "");
}

}  // namespace pith::test
