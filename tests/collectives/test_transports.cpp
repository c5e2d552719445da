// The same algorithms over real transports: ranks are threads, each with an engine of its own.
#include <atomic>
#include <thread>

#include "core/clock.hpp"
#include "core/engine.hpp"
#include "core/heap.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/collectives/host_layouts.hpp"
#include "tests/collectives/real_ranks.hpp"
#include "tests/collectives/unknown_program.hpp"

namespace pith::test {

namespace {

// Sanitizers slow down the random data and its reference; every path is walked by 700 KiB as well.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr int rank_counts[] = {2, 3};
#else
constexpr std::size_t most_bytes = std::size_t{4} << 20;
constexpr int rank_counts[] = {2, 3, 5};
#endif

using Programs = std::vector<std::unique_ptr<DenseProgram>>;

// From one byte to 4 MiB in all; every other rank's memory is registered.
Programs programs_of(const Algorithm& algorithm, int ranks) {
  Programs programs;
  std::uint64_t seed = 0;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{8}, std::size_t{999}, std::size_t{2048},
        (std::size_t{64} << 10) + 1, std::size_t{700} << 10, most_bytes}) {
    DenseCase c;
    c.algorithm = &algorithm;
    c.ranks = ranks;
    c.type = bytes % 8 == 0 ? DType::u64 : DType::u8;
    c.count = bytes / size_of(c.type);
    const Extent extent = extent_of(algorithm.collective, ranks);
    c.count /= std::max(extent.send, extent.recv);
    c.root = ranks - 1;
    c.in_place = ++seed % 2 == 0;
    c.tuning = {};
    c.seed = seed;
    const auto odd = static_cast<int>(seed / 2 % 2);
    programs.push_back(
        std::make_unique<DenseProgram>(c, [odd](int rank) { return rank % 2 == odd; }));
  }
  return programs;
}

// Rank 0 prepares and checks while the others wait.
void run_dense(RealRank& rank, Programs& shared) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == Collective::barrier) continue;
    if (rank.rank() == 0) shared = programs_of(algorithm, rank.size());
    rank.meet();
    for (auto& program : shared) {
      rank.run([&](Call& call) { return program->start(call, rank.rank()); });
    }
    rank.meet();
    if (rank.rank() != 0) continue;
    for (const auto& program : shared) rank.must(program->check(), algorithm.name);
  }
}

void run_unknown(RealRank& rank, std::unique_ptr<UnknownProgram>& shared) {
  constexpr std::size_t chunk = 4096;
  for (std::size_t turn = 0; turn < 4; ++turn) {
    if (rank.rank() == 0) {
      UnknownCase c;
      for (std::size_t r = 0; r < static_cast<std::size_t>(rank.size()); ++r) {
        c.lengths.push_back((r + turn) % 4 * 5 * chunk + (turn % 2) * 77);
      }
      c.capacity = 16 * chunk + 77;
      c.chunk_bytes = chunk;
      shared = std::make_unique<UnknownProgram>(c);
    }
    rank.meet();
    rank.run([&](Call& call) { return shared->start(call, rank.rank()); });
    rank.meet();
    if (rank.rank() == 0) rank.must(shared->check(), "allgatherv_unknown");
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

std::string run_all(RealKind kind, int ranks) {
  Programs shared;
  std::unique_ptr<UnknownProgram> unknown;
  return run_real(kind, ranks, [&](RealRank& rank) {
    run_dense(rank, shared);
    run_unknown(rank, unknown);
  });
}

}  // namespace

TEST_CASE("every algorithm over local", "[transports]") {
  for (const int ranks : rank_counts) CHECK(run_all(RealKind::local, ranks) == "");
}

TEST_CASE("every algorithm over shm", "[transports]") {
  for (const int ranks : rank_counts) CHECK(run_all(RealKind::shm, ranks) == "");
}

TEST_CASE("every algorithm over shm, private memory copied across processes", "[transports]") {
  for (const int ranks : rank_counts) CHECK(run_all(RealKind::shm_copies, ranks) == "");
}

TEST_CASE("every algorithm over tcp", "[transports]") {
  for (const int ranks : rank_counts) CHECK(run_all(RealKind::tcp, ranks) == "");
}

TEST_CASE("every algorithm over ucx", "[transports]") {
  const UcxSupport support = ucx_support("127.0.0.1");
  if (support.why_not) {
    WARN("skipped: " << support.why_not.message());
    return;
  }
  for (const int ranks : rank_counts) CHECK(run_all(RealKind::ucx, ranks) == "");
}

TEST_CASE("hierarchy=host over views, copies and messages", "[transports][by-host]") {
  CHECK(run_by_host(RealKind::local) == "");
  CHECK(run_by_host(RealKind::shm) == "");
  CHECK(run_by_host(RealKind::shm_copies) == "");
  CHECK(run_by_host(RealKind::tcp) == "");
}

}  // namespace pith::test
