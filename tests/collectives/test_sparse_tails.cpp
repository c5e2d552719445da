// What is sent when all has been looked at, in messages whose hops overlap, and what is written
// before.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/threshold_bounds.hpp"
#include "core/record.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

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
    return allreduce_compressed(call, std::span(&tensor, 1), tuning);
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

// While other elements of the gradient are still looked at.
TEST_CASE("results that are written early may take the place of gradients", "[sparse][tails]") {
  for (const char* spec :
       {"topk:density=0.01", "topk:density=0.01,exchange=ring", "ar-topk:density=0.01",
        "ar-topk:density=0.01,values=bf16,election=variance", "ar-topk:density=0.01,score=raw",
        "ar-topk:density=0.01,reduction=ring", "exdyna:density=0.01", "deft:density=0.01"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {200000, 10, 0, 70000};
    c.spec = spec;
    c.chunk_bytes = 1024;
    c.average = true;
    SparseProgram apart(c);
    c.in_place = true;
    SparseProgram in_place(c);
    World world(world_of(c));
    World other(world_of(c));
    for (std::uint64_t step = 0; step < 5; ++step) {
      apart.draw(step);
      in_place.draw(step);
      INFO(spec << ", step " << step);
      REQUIRE(apart.step(world) == "");
      REQUIRE(in_place.step(other) == "");
      for (std::size_t t = 0; t < c.counts.size(); ++t) {
        CHECK(apart.result(0, t) == in_place.result(0, t));
        CHECK(apart.residual(1, t) == in_place.residual(1, t));
      }
    }
  }
}

}  // namespace pith::test
