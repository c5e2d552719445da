// What calls are predicted to take: for every scheme, alike on all ranks, and near what calls take
// once some were measured.
#include <optional>
#include <string>
#include <vector>

#include "collectives/sparse/call_times.hpp"
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

constexpr std::uint64_t ns(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

// A vector with calls of its own, at times that the test says.
class TimedVector {
 public:
  TimedVector(CompressedCalls& calls, std::size_t count)
      : calls_(calls), compressor_(*Spec::parse("topk")) {
    tensor_.compressor = &compressor_;
    tensor_.count = count;
  }

  // What is known of the call before.
  CallBefore begin(double now_s) {
    times_.emplace(calls_, std::span(&tensor_, 1), tensor_.count, ns(now_s));
    return times_->before();
  }
  void agreed(double now_s) { times_->agreed(ns(now_s)); }
  void end(double now_s, bool failed = false) {
    compressor_.step += failed ? 0 : 1;
    times_->end(std::span(&tensor_, 1), failed, ns(now_s));
  }
  void forget() { compressor_.forget_delivered(); }

 private:
  CompressedCalls& calls_;
  Compressor compressor_;
  CompressedTensor tensor_;
  std::optional<CallTimes> times_;
};

}  // namespace

TEST_CASE("vectors share the time without calls by elements", "[sparse][stats]") {
  CompressedCalls calls;
  TimedVector large(calls, 3000);
  TimedVector small(calls, 1000);
  for (int step = 0; step < 4; ++step) {
    const double now_s = 10.0 * step + 1;
    const CallBefore before_large = large.begin(now_s);
    large.end(now_s + 1);
    const CallBefore before_small = small.begin(now_s + 3);
    small.end(now_s + 6);
    CHECK(before_large.between_s == Approx(step == 0 ? 0 : 6 * 0.75));
    CHECK(before_small.between_s == Approx(step == 0 ? 0 : 6 * 0.25));
  }
}

TEST_CASE("calls side by side share their time", "[sparse][stats]") {
  CompressedCalls calls;
  TimedVector large(calls, 3000);
  TimedVector small(calls, 1000);
  large.begin(100);
  large.agreed(100);
  small.begin(101);
  large.end(103);
  small.agreed(104);
  small.end(105);
  const CallBefore before_large = large.begin(107);
  CHECK(before_large.took_s == Approx(1 + 2.0 / 2));
  CHECK(before_large.between_s == Approx(2 * 0.75));
  const CallBefore before_small = small.begin(107);
  CHECK(before_small.took_s == Approx(1));
  CHECK(before_small.between_s == Approx(2 * 0.25));
  large.end(108);
  small.end(108);
}

TEST_CASE("a failed call was not timed, and the one before it counts", "[sparse][stats]") {
  CompressedCalls calls;
  TimedVector vector(calls, 1000);
  vector.begin(1);
  vector.agreed(1);
  vector.end(3);
  vector.begin(4);
  vector.agreed(4);
  vector.end(8, true);
  CHECK(vector.begin(9).took_s == Approx(2));
  vector.end(10);
  const CallBefore before = vector.begin(11);
  CHECK(before.took_s == 0);  // of the call before the last one
  CHECK(before.timed.seconds == Approx(2));
  vector.end(12);
}

TEST_CASE("calls of another communicator tell nothing", "[sparse][stats]") {
  CompressedCalls calls;
  TimedVector vector(calls, 1000);
  vector.begin(1);
  vector.agreed(1);
  vector.end(3);
  vector.forget();
  const CallBefore before = vector.begin(5);
  CHECK(before.between_s == 0);
  CHECK(before.timed.seconds == 0);
  vector.end(6);
}

TEST_CASE("every scheme's calls are predicted, alike on all ranks", "[sparse][stats]") {
  struct Layout {
    const char* spec;
    std::vector<int> hosts;
  };
  const Layout all[] = {
      {"none", {}},
      {"bf16", {}},
      {"qsgd:bits=2", {}},
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
