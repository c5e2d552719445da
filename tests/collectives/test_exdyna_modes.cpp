// ExDyna in modes of a call that it treats as others do not: gradients that the caller adds,
// numbers that are not finite there, rounds that are aborted.
#include <algorithm>
#include <cstring>
#include <limits>

#include "core/record.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/mode_program.hpp"
#include "tests/one_case.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

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

namespace {

// Whether rank 1 of 3 elects there in the next step.
bool looks_at(const Compressor& compressor, std::size_t where) {
  const ExdynaPartition& cut = compressor.exdyna.partition();
  if (compressor.step == 0) return false;
  const std::size_t own = ExdynaControl::owned(compressor.step, 1, 3);
  return where >= cut.begin(own) && where < cut.begin(own) + cut.size(own);
}

// One number that is not finite, on rank 1, at step 1 of three, where the caller adds: only what
// somebody looks at is seen, the own part, whatever the rule.
void check_nonfinite(const std::string& spec, std::size_t where, std::size_t chunk_bytes) {
  SparseCase c;
  c.ranks = 3;
  c.counts = {3000, 400};
  c.spec = spec;
  c.chunk_bytes = chunk_bytes;
  ModeProgram modes(c, {.in_place = true});
  SimConfig config;
  config.ranks = 3;
  World world(config);
  INFO(spec << " at " << where);
  const bool drops = Spec::parse(spec)->drops_nonfinite;
  for (std::uint64_t step = 0; step < 3; ++step) {
    modes.program.draw(step);
    if (step == 1) modes.program.gradient(1)[where] = nan;
    const bool owns = looks_at(modes.program.compressor(1), where);
    for (const Error& error : modes.step(world)) CHECK_FALSE(error);
    CHECK(modes.program.compressor(0).step == step + 1);
    const bool all_nan = std::ranges::all_of(modes.result(0), [](float x) { return x != x; });
    const bool any_nan = std::ranges::any_of(modes.result(0), [](float x) { return x != x; });
    CHECK(all_nan == any_nan);
    if (step == 1 && !drops && owns) CHECK(all_nan);
    const void* first = modes.result(0, 1).data();
    for (int r = 1; r < 3; ++r) {
      const void* other = modes.result(r, 1).data();
      CHECK(std::memcmp(first, other, 400 * sizeof(float)) == 0);  // NaNs, too
    }
  }
}

}  // namespace

TEST_CASE("numbers that are not finite in the accumulator", "[sparse][exdyna]") {
  for (const char* keys : {"", ",nonfinite=drop", ",values=bf16", ",values=f16,nonfinite=drop"}) {
    for (const char* rule : {"", ",rule=intended"}) {
      for (const std::size_t where : {0, 1200, 2900}) {
        const std::string spec = fmt::format("exdyna:density=0.05{}{}", keys, rule);
        check_nonfinite(spec, where, std::size_t{64} << 10);
        check_nonfinite(spec, where, 32);  // several rounds
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
  int which = 0;
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
      if (!is_wanted(name) || !(is_alone() || is_turn(which++, 0, 2))) continue;
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

}  // namespace pith::test
