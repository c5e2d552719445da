// ExDyna in every mode of a call: nothing is lost or invented, whatever the values' type, the form
// of gradients and results, numbers that are not finite, and ranks that die.
#include <algorithm>
#include <cstring>
#include <limits>

#include "core/record.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"
#include "tests/one_case.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

const int reduction = !sanitized && full ? 1 : 8;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Mode {
  bool in_place = false;  // gradients are added to the accumulators by the caller
  bool pairs = false;     // sparse results
  std::size_t capacity = ~std::size_t{0};
};

// A SparseProgram's ranks called in another mode; results are those of the program where dense.
class ModeProgram {
 public:
  ModeProgram(SparseCase c, Mode mode) : program(c), mode_(mode), ranks_(program.sparse_case()) {}

  std::vector<Error> step(World& world) {
    return run_ranks(world, [this](Call& call, int r) { return start(call, r); });
  }

  // The result of a rank, dense.
  const std::vector<float>& result(int rank, std::size_t t = 0) { return at(rank, t).dense; }
  std::size_t pairs(int rank, std::size_t t = 0) { return at(rank, t).count; }

  // After a step: pairs in order become dense.
  std::string unpack() {
    for (int r = 0; r < program.sparse_case().ranks; ++r) {
      for (std::size_t t = 0; t < program.sparse_case().counts.size(); ++t) {
        Output& out = at(r, t);
        if (!mode_.pairs) continue;
        std::fill(out.dense.begin(), out.dense.end(), 0.0f);
        for (std::size_t i = 0; i < std::min(out.count, out.indices.size()); ++i) {
          if (i > 0 && out.indices[i] <= out.indices[i - 1]) return "pairs out of order";
          out.dense[out.indices[i]] = out.values[i];
        }
      }
    }
    return {};
  }

  SparseProgram program;

 private:
  struct Output {
    std::vector<float> dense, values;
    std::vector<std::uint64_t> indices;
    std::size_t count = 0;
  };
  struct Outputs {
    explicit Outputs(const SparseCase& c) {
      for (int r = 0; r < c.ranks; ++r) {
        auto& own = of.emplace_back();
        tensors.emplace_back(c.counts.size());
        for (const std::size_t count : c.counts) own.push_back({std::vector<float>(count), {}, {}});
      }
    }
    std::vector<std::vector<Output>> of;
    std::vector<std::vector<CompressedTensor>> tensors;
  };
  Output& at(int rank, std::size_t t) { return ranks_.of[static_cast<std::size_t>(rank)][t]; }

  Task<Error> start(Call& call, int rank) {
    const SparseCase& c = program.sparse_case();
    auto& tensors = ranks_.tensors[static_cast<std::size_t>(rank)];
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      Compressor& compressor = program.compressor(rank, t);
      Output& out = at(rank, t);
      out.indices.resize(std::min(mode_.capacity, c.counts[t]));
      out.values.resize(out.indices.size());
      CompressedTensor& tensor = tensors[t];
      tensor.compressor = &compressor;
      tensor.count = c.counts[t];
      tensor.recv = reinterpret_cast<std::byte*>(out.dense.data());
      tensor.send = reinterpret_cast<const std::byte*>(program.gradient(rank, t).data());
      if (mode_.pairs) {
        tensor.sparse = {out.indices.data(), reinterpret_cast<std::byte*>(out.values.data()),
                         out.indices.size(), &out.count};
      }
      if (!mode_.in_place) continue;
      compressor.shape(c.counts[t], DType::f32);
      float* accumulator = compressor.accumulator();
      for (std::size_t i = 0; i < c.counts[t]; ++i) accumulator[i] += program.gradient(rank, t)[i];
      tensor.send = reinterpret_cast<const std::byte*>(accumulator);
    }
    Tuning tuning;
    tuning.chunk_bytes = c.chunk_bytes;
    return allreduce_compressed(call, tensors, tuning);
  }

  Mode mode_;
  Outputs ranks_;
};

// Several steps: gradients given = results delivered + residuals, and the same results everywhere.
// `tolerance` is relative to the largest sum.
std::string conserve(const SparseCase& c, Mode mode, int steps, double tolerance) {
  ModeProgram modes(c, mode);
  SparseProgram& program = modes.program;
  SimConfig config;
  config.ranks = c.ranks;
  config.seed = c.seed;
  World world(config);
  std::vector<std::vector<double>> given;
  std::vector<std::vector<double>> delivered;
  for (const std::size_t count : c.counts) {
    given.emplace_back(count);
    delivered.emplace_back(count);
  }
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    for (const Error& error : modes.step(world)) {
      if (error) return error.message();
    }
    if (std::string failure = modes.unpack(); !failure.empty()) return failure;
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      for (int r = 1; r < c.ranks; ++r) {
        if (modes.result(r, t) != modes.result(0, t)) return fmt::format("rank {} differs", r);
      }
      double most = 0.25;  // of one gradient
      std::vector<double> left(c.counts[t]);
      for (std::size_t i = 0; i < c.counts[t]; ++i) {
        for (int r = 0; r < c.ranks; ++r) given[t][i] += double(program.gradient(r, t)[i]);
        delivered[t][i] += double(modes.result(0, t)[i]);
        most = std::max(most, std::fabs(given[t][i]));
      }
      for (int r = 0; r < c.ranks; ++r) {
        const std::vector<float> residual = program.residual(r, t);
        for (std::size_t i = 0; i < left.size(); ++i) left[i] += double(residual[i]);
      }
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (std::fabs(given[t][i] - delivered[t][i] - left[i]) > tolerance * most) {
          return fmt::format("step {}, tensor {}, element {}: {} given, {} delivered, {} left",
                             step, t, i, given[t][i], delivered[t][i], left[i]);
        }
      }
    }
  }
  return world.leaks();
}

SparseCase several_tensors(int ranks, const std::string& spec) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = {10, 0, 30000, 3, 5000, 1};
  c.spec = spec;
  return c;
}

}  // namespace

TEST_CASE("ExDyna loses nothing, in any form of a call", "[sparse][exdyna]") {
  for (const int ranks : {1, 2, 5, 8}) {
    for (const char* keys :
         {"", ",values=bf16", ",values=f16,reduction=tree", ",rule=intended", ",reduction=ring",
          ",reduction=tree", ",partition=neighbour", ",rule=released,partition=prefix"}) {
      for (const char* scheme : {"exdyna", "micro"}) {
        if (scheme[0] == 'm' && std::strstr(keys, "partition")) continue;
        const SparseCase c = several_tensors(ranks, fmt::format("{}:density=0.02{}", scheme, keys));
        INFO(describe(c));
        CHECK(conserve(c, {}, 6, 1e-6) == "");
        CHECK(conserve(c, {.in_place = true}, 6, 1e-6) == "");
        CHECK(conserve(c, {.pairs = true}, 6, 1e-6) == "");
      }
    }
  }
}

TEST_CASE("ExDyna in several rounds loses nothing, in any form of a call", "[sparse][exdyna]") {
  for (const int ranks : {1, 2, 5}) {
    for (const char* keys : {"", ",values=bf16", ",values=f16,feedback=1", ",reduction=ring",
                             ",reduction=tree", ",partition=neighbour"}) {
      SparseCase c = several_tensors(ranks, fmt::format("exdyna:density=0.02{}", keys));
      c.chunk_bytes = 64;
      INFO(describe(c));
      CHECK(conserve(c, {}, 4, 1e-6) == "");
      CHECK(conserve(c, {.in_place = true}, 4, 1e-6) == "");
      CHECK(conserve(c, {.pairs = true}, 4, 1e-6) == "");
    }
  }
}

TEST_CASE("ExDyna in rounds of many elements", "[sparse][exdyna]") {
  for (const char* keys : {"", ",values=bf16", ",reduction=ring"}) {
    SparseCase c;
    c.ranks = 2;
    c.counts = {1200000, 77, 500000};
    c.spec = fmt::format("exdyna:density=0.01{}", keys);
    CHECK(conserve(c, {}, 3, 1e-6) == "");
    CHECK(conserve(c, {.pairs = true}, 3, 1e-6) == "");
  }
}

namespace {

// What kernels do in a call after some others.
struct Work {
  std::size_t passed = 0;  // elements of accumulators that are passed over, by all ranks
  double bytes = 0;        // of all kernels of a rank, results included; no link takes time
};

Work work_of(const SparseCase& c, bool in_place) {
  ModeProgram modes(c, {.in_place = in_place});
  SimConfig config;
  config.gamma_s_per_byte = 1e-9;
  World world(world_of(c, config));
  const auto step = [&](std::uint64_t number) {
    modes.program.draw(number);
    for (const Error& error : modes.step(world)) REQUIRE_FALSE(error);
  };
  for (std::uint64_t number = 0; number < 10; ++number) step(number);
  world.record();
  const SimTime begin = world.sim().now();
  step(10);
  Work work;
  for (int r = 0; r < c.ranks; ++r) {
    const double seconds = sim_seconds(world.compute(r).free_at() - begin);
    work.bytes = std::max(work.bytes, seconds / config.gamma_s_per_byte);
    for (const Step& one : world.recorder(r).steps()) {
      if (one.name == "accumulate" || one.name == "select") work.passed += one.bytes / 4;
    }
  }
  return work;
}

}  // namespace

// Together the ranks look at each element once; what else a rank does is of its result and of what
// was elected.
TEST_CASE("where the caller adds, a rank reads its own part only", "[sparse][exdyna]") {
  for (const char* spec : {"exdyna:density=0.01", "exdyna:density=0.01,values=bf16",
                           "exdyna:density=0.01,partition=neighbour", "micro:density=0.01"}) {
    for (const std::size_t chunk_bytes : {std::size_t{4096}, std::size_t{1} << 20}) {
      SparseCase c;
      c.ranks = 4;
      c.counts = {std::size_t{1} << 18};
      c.spec = spec;
      c.chunk_bytes = chunk_bytes;
      const Work apart = work_of(c, false);
      const Work in_place = work_of(c, true);
      INFO(spec << ": " << in_place.passed << " elements, " << in_place.bytes << " bytes; "
                << apart.passed << " and " << apart.bytes << " where the call adds");
      CHECK(apart.passed == 4 * c.counts[0]);
      CHECK(in_place.passed == c.counts[0]);
      CHECK(in_place.bytes < 12 * double(c.counts[0]));  // of one pass over a whole vector
    }
  }
}

TEST_CASE("pairs that have no room", "[sparse][exdyna]") {
  SparseCase c;
  c.ranks = 3;
  c.spec = "exdyna:density=0.1";
  ModeProgram modes(c, {.pairs = true, .capacity = 20});
  SimConfig config;
  config.ranks = 3;
  World world(config);
  modes.program.draw(0);
  for (const Error& error : modes.step(world)) CHECK(error.code() == Code::invalid_argument);
  CHECK(modes.pairs(0) > 20);
  CHECK(modes.program.compressor(0).step == 1);
}

TEST_CASE("gradients of zeros, and then others", "[sparse][exdyna]") {
  SparseCase c;
  c.ranks = 4;
  c.counts = {5000};
  c.spec = "exdyna:density=0.01";
  SparseProgram program(c);
  SimConfig config;
  config.ranks = 4;
  World world(config);
  for (int step = 0; step < 3; ++step) {
    REQUIRE(program.step(world) == "");
    CHECK(std::ranges::all_of(program.result(0), [](float x) { return x == 0; }));
    CHECK(program.compressor(0).stats.selected_union == 0);
  }
  for (std::uint64_t step = 0; step < 5; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    CHECK(program.compressor(0).stats.selected_union > 10);
    CHECK(program.compressor(0).stats.selected_union < 150);
  }
}

namespace {

// Whether rank 1 of 3 elects there in the next step.
bool looks_at(const Compressor& compressor, std::size_t where) {
  const ExdynaPartition& cut = compressor.exdyna.partition();
  if (compressor.step == 0) return false;
  const std::size_t own = ExdynaControl::owned(compressor.step, 1, 3);
  return where >= cut.begin(own) && where < cut.begin(own) + cut.size(own);
}

// One number that is not finite, on rank 1, at step 1 of three.
void check_nonfinite(const std::string& spec, bool in_place, std::size_t where,
                     std::size_t chunk_bytes) {
  SparseCase c;
  c.ranks = 3;
  c.counts = {3000, 400};
  c.spec = spec;
  c.chunk_bytes = chunk_bytes;
  ModeProgram modes(c, {.in_place = in_place});
  SimConfig config;
  config.ranks = 3;
  World world(config);
  INFO(spec << " at " << where << (in_place ? " in place" : ""));
  const bool drops = Spec::parse(spec)->drops_nonfinite;
  for (std::uint64_t step = 0; step < 3; ++step) {
    modes.program.draw(step);
    std::vector<float> before = modes.program.residual(1);
    std::vector<float>& gradient = modes.program.gradient(1);
    if (step == 1) gradient[where] = nan;
    const bool owns = looks_at(modes.program.compressor(1), where);
    for (const Error& error : modes.step(world)) CHECK_FALSE(error);
    CHECK(modes.program.compressor(0).step == step + 1);
    // Where the caller adds, only what somebody looks at is seen: the own part, whatever the rule.
    const bool all_nan = std::ranges::all_of(modes.result(0), [](float x) { return x != x; });
    const bool any_nan = std::ranges::any_of(modes.result(0), [](float x) { return x != x; });
    CHECK(all_nan == any_nan);
    if (!in_place) CHECK(all_nan == (step == 1 && !drops));
    if (in_place && step == 1 && !drops && owns) CHECK(all_nan);
    const void* first = modes.result(0, 1).data();
    for (int r = 1; r < 3; ++r) {
      const void* other = modes.result(r, 1).data();
      CHECK(std::memcmp(first, other, 400 * sizeof(float)) == 0);  // NaNs, too
    }
    if (in_place || drops || step != 1) continue;
    const std::vector<float> after = modes.program.residual(1);
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (after[i] != (i == where ? before[i] : before[i] + gradient[i])) {
        FAIL("element " << i << " is not conserved");
      }
    }
  }
}

}  // namespace

TEST_CASE("numbers that are not finite", "[sparse][exdyna]") {
  for (const char* keys : {"", ",nonfinite=drop", ",values=bf16", ",values=f16,nonfinite=drop"}) {
    for (const char* rule : {"", ",rule=intended"}) {
      for (const bool in_place : {false, true}) {
        for (const std::size_t where : {0, 1200, 2900}) {
          const std::string spec = fmt::format("exdyna:density=0.05{}{}", keys, rule);
          check_nonfinite(spec, in_place, where, std::size_t{64} << 10);
          check_nonfinite(spec, in_place, where, 32);  // several rounds
        }
      }
    }
  }
}

namespace {

// What a rank holds of the first call's gradient in its accumulator and in its hands.
std::string check_held(SparseProgram& program) {
  const SparseCase& c = program.sparse_case();
  for (int r = 0; r < c.ranks; ++r) {
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      Compressor& compressor = program.compressor(r, t);
      if (!compressor.shaped()) continue;
      std::vector<float> held = program.residual(r, t);
      PairList& taken = compressor.taken();
      for (std::size_t i = 0; i < taken.count(); ++i) {
        float value = 0;
        std::memcpy(&value, taken.values(i), sizeof value);
        held[*taken.indices(i)] += value;
      }
      if (held != program.gradient(r, t)) return fmt::format("rank {} has lost something", r);
    }
  }
  return {};
}

class AbortedExdyna final : public Program {
 public:
  AbortedExdyna(const SparseCase& c, std::string& failure)
      : program_(c), failure_(failure), unused_(static_cast<std::size_t>(c.ranks)) {
    program_.draw(0);
  }
  ~AbortedExdyna() override {
    if (failure_.empty()) failure_ = check_held(program_);
  }
  Task<Error> start(Call& call, int rank) override { return program_.start(call, rank); }
  std::span<std::byte> memory(int rank) override { return unused_[static_cast<std::size_t>(rank)]; }

 private:
  SparseProgram program_;
  std::string& failure_;
  std::vector<std::vector<std::byte>> unused_;
};

}  // namespace

TEST_CASE("an abort at any step of ExDyna", "[sparse][exdyna][abort]") {
  for (const int ranks : {2, 3, 5}) {
    for (const char* spec :
         {"exdyna:density=0.05", "micro:density=0.05,rule=released", "micro:density=0.05"}) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {700, 30};
      c.spec = spec;
      // The last one in rounds: eleven, seven and four.
      if (spec == std::string_view("micro:density=0.05")) c.chunk_bytes = 8;
      SimConfig config;
      config.ranks = ranks;
      config.kernel_s = 1e-7;
      config.slot_bytes = 48;
      const std::string name = describe(c);
      if (!is_wanted(name)) continue;
      std::string lost;
      const AbortReport report = inject_aborts(config, [&]() -> std::unique_ptr<Program> {
        return std::make_unique<AbortedExdyna>(c, lost);
      });
      if (!report.failure.empty()) {
        print_again(report.variables + "build/bin/test_compressed '[exdyna][abort]'", name);
      }
      INFO(name);
      CHECK(report.failure == "");
      CHECK(lost == "");
      CHECK((report.points > 30 || is_alone()));
    }
  }
}

TEST_CASE("a rank that dies during ExDyna", "[sparse][exdyna][abort]") {
  for (int point = 0; point < 60; ++point) {
    SparseCase c;
    c.ranks = 4;
    c.counts = {2000};
    if (point >= 30) c.chunk_bytes = 16;  // in seven rounds
    c.spec = "exdyna:density=0.05";
    SparseProgram program(c);
    program.draw(0);
    SimConfig config;
    config.ranks = c.ranks;
    World world(config);
    world.sim().kill(point % 4, 3e-7 * (point % 30));
    const std::vector<Error> errors =
        run_ranks(world, [&](Call& call, int r) { return program.start(call, r); });
    for (const Error& error : errors) CHECK((!error || error.code() == Code::remote));
    CHECK(check_held(program) == "");
  }
}

TEST_CASE("ExDyna of many ranks", "[sparse][exdyna][scale]") {
  SparseCase c;
  c.ranks = 1024 / reduction;
  c.counts = {20000};
  c.spec = "exdyna:density=0.1";
  SparseProgram program(c);
  SimConfig config;
  config.ranks = c.ranks;
  config.jitter_s = 1e-4;
  World world(config);
  program.draw(0);
  REQUIRE(program.step(world) == "");
  CHECK(program.compressor(0).stats.selected_union > 500);
  CHECK(program.compressor(0).stats.selected_union < 5000);
}

}  // namespace pith::test
