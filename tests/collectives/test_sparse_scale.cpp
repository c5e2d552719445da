// Schemes that sum what they elect exactly, on many ranks whose messages are delayed at random: all
// ranks get the same bits, and no gradient is lost. 128 ranks; with PITH_TEST_FULL=1 1,024.
//
// Those that round, draw, send means or correct momentum have no such balance, and sidco may elect
// nothing in its first calls: test_schemes.cpp, "many ranks", compares one of each exchange with
// its reference. Gossip: test_sparse_gossip.cpp.
#include "tests/catch.hpp"
#include "tests/collectives/host_layouts.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

const int reduction = !sanitized && full ? 1 : 8;

// Gradients given are results delivered and residuals kept; of integers, exactly.
class Balance {
 public:
  explicit Balance(const SparseCase& c) : left_(c.counts[0]) {}

  void give(SparseProgram& program) {
    for (int r = 0; r < program.sparse_case().ranks; ++r) {
      const std::vector<float>& gradient = program.gradient(r);
      for (std::size_t i = 0; i < left_.size(); ++i) left_[i] += double(gradient[i]);
    }
  }
  void take(SparseProgram& program) {
    for (std::size_t i = 0; i < left_.size(); ++i) left_[i] -= double(program.result(0)[i]);
  }
  bool is_kept(SparseProgram& program) const {
    std::vector<double> kept(left_.size());
    for (int r = 0; r < program.sparse_case().ranks; ++r) {
      const std::vector<float> residual = program.residual(r);
      for (std::size_t i = 0; i < kept.size(); ++i) kept[i] += double(residual[i]);
    }
    return kept == left_;
  }

 private:
  std::vector<double> left_;
};

// Empty is good.
std::string run_at_scale(const std::string& spec, int ranks, int ranks_of_host = 0) {
  SparseCase c;
  c.ranks = ranks / reduction;
  c.counts = {3000};
  c.spec = spec;
  c.integers = true;
  for (int r = 0; r < c.ranks && ranks_of_host > 0; ++r) c.hosts.push_back(r / ranks_of_host);
  SparseProgram program(c);
  SimConfig config;
  config.jitter_s = 2e-5;
  const auto world = world_with_hosts(c, config);
  Balance balance(c);
  bool delivers = false;
  for (int step = 0; step < 2; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    balance.give(program);
    const std::string failure = program.step(*world);
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
    balance.take(program);
    delivers |= program.compressor(0).stats.selected_union > 0;
  }
  if (!delivers) return fmt::format("{}: nothing is delivered", describe(c));
  if (!balance.is_kept(program)) return fmt::format("{}: gradients are lost", describe(c));
  return world->leaks();
}

}  // namespace

TEST_CASE("elected elements of many ranks with random delays", "[sparse][scale]") {
  for (const char* spec : {"topk:density=0.01,exchange=direct",
                           "topk:density=0.01,exchange=ring",
                           "topk:density=0.01,exchange=split",
                           "topk:density=0.01,exchange=recursive-doubling",
                           "ar-topk:density=0.01,election=staleness",
                           "ar-topk:density=0.01,election=variance",
                           "ar-topk:density=0.01,election=variance-lagged",
                           "ar-topk:density=0.01,reduction=ring",
                           "ar-topk:density=0.01,reduction=tree",
                           "exdyna:density=0.01,rule=released",
                           "exdyna:density=0.01,rule=intended",
                           "exdyna:density=0.01,partition=neighbour",
                           "exdyna:density=0.01,rule=released,partition=prefix",
                           "micro:density=0.01",
                           "deft:density=0.01",
                           "spardl:density=0.01",
                           "ok-topk:density=0.01",
                           "gtopk:density=0.01",
                           "arc-topk:density=0.01",
                           "randomk:density=0.01",
                           "clt-k:density=0.01",
                           "clt-k:density=0.01,beta=0.5",
                           "threshold:value=100"}) {
    CHECK(run_at_scale(spec, 1024) == "");
  }
  CHECK(run_at_scale("topk:density=0.01,exchange=recursive-doubling", 1000) == "");
}

TEST_CASE("schemes by host of many ranks with random delays", "[by-host][scale]") {
  for (const char* spec : {"topk:density=0.01", "topk:density=0.01,exchange=split",
                           "ar-topk:density=0.01", "exdyna:density=0.01", "deft:density=0.01"}) {
    CHECK(run_at_scale(fmt::format("{},hierarchy=host", spec), 1024, 8) == "");
  }
}

}  // namespace pith::test
