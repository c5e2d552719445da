// What calls are predicted to take: for every scheme, alike on all ranks, and near what calls take
// once some were measured.
#include <optional>
#include <string>
#include <vector>

#include "model/compressed_cost.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

constexpr SimLink slow{50e-6, 80e-9};
constexpr SimLink fast{2e-6, 0.008e-9};

// Calls of a vector whose times are those of the simulated link, and of nominal cores.
class MeasuredCalls {
 public:
  MeasuredCalls(const std::string& spec, SimLink link) : program_(case_of(spec)) {
    SimConfig config;
    config.link = link;
    world_.emplace(world_of(program_.sparse_case(), config));
  }

  void call() {
    program_.draw(step_++);
    REQUIRE(program_.step(*world_) == "");
    const SparseCase& c = program_.sparse_case();
    const CompressorStats& of_all = program_.compressor(0).stats;
    const Spec& spec = program_.compressor(0).spec();
    took_s_ = world_->elapsed_s() + way_cost(spec, of_all.bypassed, c.counts[0], c.ranks).work_s;
    predicted_s_ = of_all.predicted_seconds;
    for (int r = 0; r < c.ranks; ++r) {
      CompressorStats& stats = program_.compressor(r).stats;
      REQUIRE(stats.predicted_seconds == predicted_s_);
      stats.timed.seconds = stats.total_seconds = took_s_;
    }
  }
  // Of the last call.
  double ratio() const { return predicted_s_ / took_s_; }

 private:
  static SparseCase case_of(const std::string& spec) {
    SparseCase c;
    c.ranks = 4;
    c.counts = {100'000};
    c.spec = spec;
    return c;
  }

  SparseProgram program_;
  std::optional<World> world_;
  std::uint64_t step_ = 0;
  double predicted_s_ = 0;
  double took_s_ = 0;
};

}  // namespace

TEST_CASE("every scheme's calls are predicted, alike on all ranks", "[sparse][stats]") {
  struct Layout {
    const char* spec;
    std::vector<int> hosts;
  };
  const Layout all[] = {
      {"none", {}},
      {"bf16", {}},
      {"topk:bypass=auto", {}},
      {"topk:density=auto", {}},
      {"ar-topk", {}},
      {"exdyna:density=auto,bypass=never", {}},
      {"micro", {}},
      {"deft", {}},
      {"topk:hierarchy=host", {0, 0, 1, 1}},
      {"ar-topk:hierarchy=host,bypass=auto", {0, 0, 1, 1}},
      {"exdyna:hierarchy=host", {0, 0, 0, 0}},
  };
  for (const Layout& one : all) {
    SparseCase c;
    c.ranks = 4;
    c.counts = {5000, 300};
    c.spec = one.spec;
    c.hosts = one.hosts;
    SparseProgram program(c);
    World world(world_of(c));
    REQUIRE(program.step(world) == "");
    const double predicted = program.compressor(0).stats.predicted_seconds;
    INFO(one.spec << ": " << predicted << " s");
    CHECK(predicted > 0);
    CHECK(predicted < 1);
    for (int r = 0; r < c.ranks; ++r) {
      for (const std::size_t t : {0, 1}) {
        CHECK(program.compressor(r, t).stats.predicted_seconds == predicted);
      }
    }
  }
}

TEST_CASE("calls of one rank, or of nothing, are not predicted", "[sparse][stats]") {
  for (const int ranks : {1, 2}) {
    SparseCase c;
    c.ranks = ranks;
    c.counts = {ranks == 1 ? std::size_t{1000} : 0};
    SparseProgram program(c);
    World world(world_of(c));
    REQUIRE(program.step(world) == "");
    CHECK(program.compressor(0).stats.predicted_seconds == 0);
  }
}

TEST_CASE("half as many bytes are predicted to take less", "[sparse][stats]") {
  const Spec dense = *Spec::parse("none");
  const Spec narrow = *Spec::parse("bf16");
  CHECK(compressed_cost(narrow, 0, 1000, 4).bytes == compressed_cost(dense, 0, 1000, 4).bytes / 2);
  CHECK(compressed_cost(dense, 0, 1000, 4).bytes == dense_cost(1000, 4).bytes);
}

// The density hardly moves, so that no time of this machine decides.
TEST_CASE("after some calls the predicted time is near the measured one", "[sparse][stats]") {
  for (const char* spec :
       {"topk:density=0.01,bypass=auto", "topk:density=0.01..0.0101,bypass=never",
        "ar-topk:density=0.01,bypass=auto", "ar-topk:density=0.01..0.0101,bypass=never",
        "exdyna:density=0.01,bypass=auto", "deft:density=0.01..0.0101,bypass=never"}) {
    for (const SimLink link : {slow, fast}) {
      MeasuredCalls calls(spec, link);
      for (int i = 0; i < 32; ++i) calls.call();
      for (int i = 0; i < 4; ++i) {
        calls.call();
        INFO(spec << ", " << link.s_per_byte << " s/byte");
        CHECK(calls.ratio() > 0.7);
        CHECK(calls.ratio() < 1.4);
      }
    }
  }
}

}  // namespace pith::test
