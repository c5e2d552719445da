// What is sent when all has been looked at, in messages whose hops overlap, and what is written
// before.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>

#include "compress/threshold_bounds.hpp"
#include "core/record.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

// Kernels take their time here: selecting 12 bytes of work an element, writing 4.
constexpr std::size_t count = std::size_t{1} << 20;
constexpr double select_s = 10e-3;
constexpr double write_s = select_s / 3;
constexpr double s_per_byte = 8e-9;  // of a link

SimConfig gigabit() {
  SimConfig config;
  config.link = {20e-6, s_per_byte};
  config.gamma_s_per_byte = select_s / double(12 * count);
  return config;
}

SparseCase case_of(int ranks, const char* spec) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = {count};
  c.spec = spec;
  c.chunk_bytes = 4096;
  return c;
}

struct Times {
  double rest_s = 0;  // from the end of selecting on, kernels included
  double wire_s = 0;  // of what a rank has sent
};

// Of a call whose forecast is good; rank 0 begins later than the others.
Times times_of(const SparseCase& c, double late_s) {
  SparseProgram program(c);
  World world(world_of(c, gigabit()));
  world.start_s = [&](int rank) { return rank == 0 ? late_s : 0; };
  REQUIRE(program.begin(world, 12) == "");
  const SimTime begin = world.sim().now();
  REQUIRE(program.step(world) == "");
  double end_s = world.elapsed_s();
  for (int r = 0; r < c.ranks; ++r) {
    end_s = std::max(end_s, sim_seconds(world.compute(r).free_at() - begin));
  }
  return {end_s - late_s - select_s, double(program.compressor(1).stats.bytes_sent) * s_per_byte};
}

// Bytes of the longest kernel of all ranks that does not write results. What no note tells is known
// by its time, of which a byte takes a nanosecond.
std::uint64_t longest_pass(World& world) {
  std::uint64_t longest = 0;
  for (int r = 0; r < world.size(); ++r) {
    for (const Step& step : world.recorder(r).steps()) {
      if (step.op != Step::Op::kernel || step.name == "scatter") continue;
      const bool is_noted = step.name != "kernel";
      longest = std::max(longest, is_noted ? step.bytes : step.end_ns - step.begin_ns);
    }
  }
  return longest;
}

std::string first_step(SparseProgram& program, World& world) {
  program.draw(0);
  return program.step(world);
}
std::string usual_step(SparseProgram& program, World& world) {
  program.draw(1);
  return program.step(world);
}

// Callers have added their gradients to the accumulators.
std::string step_in_place(SparseProgram& program, World& world) {
  const SparseCase& c = program.sparse_case();
  program.draw(2);
  Tuning tuning;
  tuning.chunk_bytes = c.chunk_bytes;
  std::vector<CompressedTensor> tensors(static_cast<std::size_t>(c.ranks));
  const auto start = [&](Call& call, int rank) {
    Compressor& compressor = program.compressor(rank);
    std::vector<float>& gradient = program.gradient(rank);
    float* const accumulator = compressor.accumulator();
    for (std::size_t i = 0; i < count; ++i) accumulator[i] += gradient[i];
    CompressedTensor& tensor = tensors[static_cast<std::size_t>(rank)];
    tensor.compressor = &compressor;
    tensor.send = reinterpret_cast<const std::byte*>(accumulator);
    tensor.recv = reinterpret_cast<std::byte*>(gradient.data());
    tensor.count = count;
    return allreduce_compressed(call, std::span(&tensor, 1), tuning, program.calls(rank));
  };
  for (const Error& error : run_ranks(world, start)) {
    if (error) return error.message();
  }
  return {};
}

// Samples see large elements only, so that top-k finds too few where it looks.
std::string misleading_step(SparseProgram& program, World& world) {
  program.draw(3);
  const std::size_t stride = count / (sample_elements(count) / SampleKernel::line);
  for (int r = 0; r < program.sparse_case().ranks; ++r) {
    std::vector<float>& gradient = program.gradient(r);
    for (std::size_t i = 0; i < count; ++i) {
      if (i % stride < SampleKernel::line) gradient[i] += std::copysign(100.0f, gradient[i]);
    }
  }
  return program.step(world);
}

// What one call takes, and its stages would alone.
struct Stages {
  double total_s = 0;      // kernels included
  double compute_s = 0;    // of the busiest rank
  double selection_s = 0;  // of that: passes over gradients
  double wire_s = 0;       // of the busiest port
  double first_s = 0;      // AR-Topk: the way of the first indices alone
  double last_s = 0;       // that of the last tail, and of the sums of its values
  double sums_s = 0;       // top-k: of all lists, which wait for the last tails
};

// Bytes that the busiest rank has sent under the name of a step, by lane.
using LaneBytes = std::array<double, 4>;
LaneBytes bytes_of_step(World& world, std::uint32_t number) {
  LaneBytes most{};
  for (int r = 0; r < world.size(); ++r) {
    LaneBytes sent{};
    for (const Step& step : world.recorder(r).steps()) {
      if (step.op == Step::Op::send && step.step == number) sent[step.lane] += double(step.bytes);
    }
    for (std::size_t lane = 0; lane < most.size(); ++lane) {
      most[lane] = std::max(most[lane], sent[lane]);
    }
  }
  return most;
}

// Indices go down the chain of all ranks, values to their owners, and sums back.
void see_chain(World& world, const SimLink& link, Stages& stages) {
  std::uint32_t last = 0;
  for (const Step& step : world.recorder(0).steps()) {
    if (step.op == Step::Op::send) last = std::max(last, step.step);
  }
  const auto seconds = [&](double bytes) { return link.latency_s + bytes * link.s_per_byte; };
  const double hops = world.size() - 1;
  const LaneBytes of_last = bytes_of_step(world, last);
  stages.first_s = hops * seconds(bytes_of_step(world, 0)[0]);
  stages.last_s = hops * seconds(of_last[0]) + seconds(of_last[2]) + seconds(of_last[3]);
}

// Of the next step, over such links. An element of a pass takes a nanosecond.
Stages stages_of(SparseProgram& program, double s_per_byte_of_link) {
  const SparseCase& c = program.sparse_case();
  SimConfig config;
  config.link = {20e-6, s_per_byte_of_link};
  config.gamma_s_per_byte = 1e-9 / 12;
  World world(world_of(c, config));
  world.record();
  REQUIRE(program.step(world) == "");
  Stages stages;
  stages.total_s = world.elapsed_s();
  for (int r = 0; r < c.ranks; ++r) {
    REQUIRE(world.recorder(r).dropped() == 0);
    double compute_s = 0;
    double selection_s = 0;
    double sums_s = 0;
    for (const Step& step : world.recorder(r).steps()) {
      if (step.op != Step::Op::kernel) continue;
      const double seconds = double(step.end_ns - step.begin_ns) * 1e-9;
      compute_s += seconds;
      if (step.name == "select" || step.name == "accumulate") selection_s += seconds;
      if (step.name == "add up") sums_s += seconds;
    }
    stages.sums_s = std::max(stages.sums_s, sums_s);
    const CompressorStats& stats = program.compressor(r).stats;
    const double bytes = double(std::max(stats.bytes_sent, stats.bytes_received));
    stages.total_s = std::max(stages.total_s, sim_seconds(world.compute(r).free_at()));
    stages.compute_s = std::max(stages.compute_s, compute_s);
    stages.selection_s = std::max(stages.selection_s, selection_s);
    stages.wire_s = std::max(stages.wire_s, bytes * s_per_byte_of_link);
  }
  const bool has_chain = program.compressor(0).spec().scheme->electors == Electors::leader;
  if (has_chain) see_chain(world, config.link, stages);
  if (has_chain) stages.sums_s = 0;  // a parcel's follow its values
  return stages;
}

// Heavy tails, the same in every step, whose k-th magnitude is known to the forecast, for there is
// no feedback. Rank 0 has the largest, so that it leads where the variance decides.
void draw_steadily(SparseProgram& program) {
  for (int r = 0; r < program.sparse_case().ranks; ++r) {
    std::vector<float>& gradient = program.gradient(r);
    std::vector<float> magnitudes;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const std::uint64_t bits = random_bits(7, static_cast<std::uint64_t>(r), i);
      const float u = float((bits & 0xffffff) + 1) / float(1 << 24);
      magnitudes.push_back((r == 0 ? 2.0f : 1.0f) / std::sqrt(u));
      gradient[i] = bits >> 63 == 0 ? magnitudes[i] : -magnitudes[i];
    }
    Compressor& compressor = program.compressor(r);
    const std::size_t k = elected_of(compressor.spec().density, gradient.size());
    const auto last = magnitudes.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(magnitudes.begin(), last, magnitudes.end(), std::greater<>());
    for (int step = 0; step < 16; ++step) compressor.forecast.saw(*last);
  }
}

struct Overlap {
  const char* spec;
  bool selects_first;  // nothing is sent before all ranks have selected
};

// Links of 1 and 0.1 Gbit/s, and such that they are as busy as a core.
void check_overlap(const Overlap& overlap, int ranks) {
  SparseCase c = case_of(ranks, overlap.spec);
  c.counts = {std::size_t{1} << 21};
  SparseProgram program(c);
  draw_steadily(program);
  {
    World world(world_of(c));
    REQUIRE(program.step(world) == "");
  }
  double s_per_byte_if_equal = 0;
  for (const double link : {8e-9, 8e-8, 0.0}) {
    const double s_per_byte_of_link = link > 0 ? link : s_per_byte_if_equal;
    const Stages is = stages_of(program, s_per_byte_of_link);
    s_per_byte_if_equal = is.compute_s * s_per_byte_of_link / is.wire_s;
    // What the wire overlaps with nothing of.
    const double selects_s = overlap.selects_first ? is.selection_s : 0;
    const double parcel_s = overlap.selects_first || is.first_s == 0 ? 0 : is.selection_s / 16;
    const double alone_s = parcel_s + is.first_s + is.last_s + is.sums_s;
    INFO(
        fmt::format("{}, {} ranks, {:.2f} ns a byte: {:.3f} ms; compute {:.3f}, wire {:.3f}, "
                    "alone {:.3f}",
                    c.spec, ranks, s_per_byte_of_link * 1e9, is.total_s * 1e3, is.compute_s * 1e3,
                    is.wire_s * 1e3, alone_s * 1e3));
    CHECK(is.total_s - selects_s <
          std::max(1.15 * (is.compute_s - selects_s), 1.15 * is.wire_s + alone_s));
  }
}

}  // namespace

// In one message they would take 2.2 and 2.9 lists' time.
TEST_CASE("the tails of a late rank go round the ring behind each other", "[sparse][tails]") {
  for (const int ranks : {4, 8}) {
    const Times times = times_of(case_of(ranks, "topk:density=0.01,exchange=ring"), 5e-3);
    const double list_s = times.wire_s / (ranks - 1);
    INFO(ranks << " ranks: " << times.rest_s << " s, of which " << times.wire_s << " s wire");
    CHECK(times.rest_s < write_s + times.wire_s + 2 * list_s);
  }
}

// In one message they would take 2.7 and 3.4 times as long as the wire, and what is written at the
// end comes after that.
TEST_CASE("a leader's tails go down the chain, and sums are written before", "[ar-topk][tails]") {
  for (const int ranks : {4, 8}) {
    const Times times = times_of(case_of(ranks, "ar-topk:density=0.01"), 0);
    INFO(ranks << " ranks: " << times.rest_s << " s, of which " << times.wire_s << " s wire");
    CHECK(times.rest_s < write_s + (ranks == 4 ? 2.3 : 3.0) * times.wire_s);
  }
}

// A rank relays nothing while a kernel runs. Whatever looks at gradients or accumulators writes, or
// if nothing, reads 4 bytes an element.
TEST_CASE("no pass over gradients is long", "[sparse][tails]") {
  for (const char* spec :
       {"topk:density=0.01", "topk:density=0.01,exchange=ring", "topk:density=0.01,exchange=split",
        "ar-topk:density=0.01", "ar-topk:density=0.01,election=variance",
        "ar-topk:density=0.01,election=variance,score=raw",
        "ar-topk:density=0.01,election=variance-lagged",
        "ar-topk:density=0.01,election=variance-lagged,score=raw", "exdyna:density=0.01",
        "micro:density=0.01", "deft:density=0.01", "topk:density=0.01,hierarchy=host",
        "deft:density=0.01,hierarchy=host"}) {
    SparseCase c = case_of(2, spec);
    c.chunk_bytes = std::size_t{1} << 20;
    if (c.spec.find("host") != std::string::npos) c.hosts = {0, 0, 1, 1};
    if (!c.hosts.empty()) c.ranks = 4;
    SparseProgram program(c);
    for (const auto& step : {first_step, usual_step, step_in_place, misleading_step}) {
      SimConfig config;
      config.gamma_s_per_byte = 1e-9;
      World world(world_of(c, config));
      if (!c.hosts.empty()) world.set_hosts(c.hosts);
      world.record();
      REQUIRE(step(program, world) == "");
      INFO(spec);
      CHECK(longest_pass(world) > 0);
      CHECK(longest_pass(world) <= std::uint64_t{4} << 18);
    }
  }
}

// In one stage after the other they would take twice as long where both are equal. Ports of AR-Topk
// cannot be busy all the time: no value moves before the leader has selected a first parcel, and
// its indices have been everywhere: 0.19 (2 ranks) to 0.43 ms (8) over the equal links, where a
// stage takes 2.9 ms. The indices of the last tail, which are known at the end only, are P - 1 hops
// under way, then their values, and the sums of these: 0.08 to 0.22 ms. Kernels overlap with both.
// And with election=variance nobody leads before all have selected, 2.1 ms, which overlap with
// nothing. Top-k's lists are added up when the last tails have come, of which every block has some:
// up to 0.11 ms; to add up what parcels brought before would be to do it twice.
TEST_CASE("streamed calls take little longer than their slowest stage", "[sparse][tails][long]") {
  for (const int ranks : {2, 4, 8}) {
    if (ranks == 4 && !full) continue;
    check_overlap({"topk:density=0.01,feedback=0,exchange=direct", false}, ranks);
    check_overlap({"topk:density=0.01,feedback=0,exchange=ring", false}, ranks);
    check_overlap({"ar-topk:density=0.01,feedback=0", false}, ranks);
    check_overlap({"ar-topk:density=0.01,feedback=0,election=variance", true}, ranks);
    check_overlap({"ar-topk:density=0.01,feedback=0,election=variance-lagged", false}, ranks);
  }
}

namespace {

// Are results and residuals the same where results take the place of gradients?
void check_in_place(const SparseCase& apart_case) {
  SparseCase in_place_case = apart_case;
  in_place_case.in_place = true;
  SparseProgram apart(apart_case);
  SparseProgram in_place(in_place_case);
  World world(world_of(apart_case));
  World other(world_of(in_place_case));
  for (std::uint64_t step = 0; step < 5; ++step) {
    apart.draw(step);
    in_place.draw(step);
    INFO(apart_case.spec << ", step " << step);
    REQUIRE(apart.step(world) == "");
    REQUIRE(in_place.step(other) == "");
    for (int r = 0; r < apart_case.ranks; ++r) {
      for (std::size_t t = 0; t < apart_case.counts.size(); ++t) {
        CHECK(apart.result(r, t) == in_place.result(r, t));
        CHECK(apart.residual(r, t) == in_place.residual(r, t));
      }
    }
  }
}

}  // namespace

// While other elements of the gradient are still looked at.
TEST_CASE("results that are written early may take the place of gradients", "[sparse][tails]") {
  SparseCase c;
  c.ranks = 3;
  c.average = true;
  for (const char* spec :
       {"topk:density=0.01", "topk:density=0.01,exchange=ring", "ar-topk:density=0.01",
        "ar-topk:density=0.01,values=bf16,election=variance", "ar-topk:density=0.01,score=raw",
        "ar-topk:density=0.01,reduction=ring", "exdyna:density=0.01", "deft:density=0.01"}) {
    c.counts = {200000, 10, 0, 70000};
    c.spec = spec;
    c.chunk_bytes = 1024;
    check_in_place(c);
  }
}

TEST_CASE("a parcel may be written in parts", "[sparse][tails]") {
  SparseCase c;
  c.ranks = 3;
  c.counts = {1'500'000};
  c.chunk_bytes = std::size_t{1} << 16;  // 3 parcels, all but the last of more than 2^19 elements
  for (const char* spec : {"topk:density=0.01", "ar-topk:density=0.01",
                           "ar-topk:density=0.01,values=bf16,election=variance"}) {
    c.spec = spec;
    check_in_place(c);
  }
}

}  // namespace pith::test
