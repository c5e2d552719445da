// The top-k allreduce against the plain algorithm, bit for bit.
#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/catch.hpp"
#include "tests/collectives/hard_gradients.hpp"
#include "tests/collectives/rounded.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// Elects from `sums` as the definition says, and leaves the residual there.
void elect(std::vector<float>& sums, std::size_t k, DType type, std::vector<float>& elected) {
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t most = std::min(k, sums.size());
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(most);
  std::nth_element(order.begin(), last, order.end(), [&](std::size_t a, std::size_t b) {
    const float of_a = std::fabs(sums[a]);
    const float of_b = std::fabs(sums[b]);
    return of_a > of_b || (of_a == of_b && a < b);
  });
  elected.assign(sums.size(), 0);
  for (std::size_t i = 0; i < most; ++i) {
    elected[order[i]] = rounded(sums[order[i]], type);
    sums[order[i]] -= elected[order[i]];
  }
}

// What becomes of the gradients of a step before it is made.

// What becomes of a tensor's gradients at a step: they are multiplied.
using Factor = std::function<float(std::size_t tensor, int step)>;

void scale(SparseProgram& program, int step, const Factor& factor) {
  const SparseCase& c = program.sparse_case();
  for (int r = 0; r < c.ranks; ++r) {
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      for (float& value : program.gradient(r, t)) value *= factor(t, step);
    }
  }
}

// All steps of one case beside the plain algorithm; empty is good.
std::string run_beside_reference(const SparseCase& c, int steps, const Factor& factor = {},
                                 const Change& change = {}) {
  SparseProgram program(c);
  World world(world_of(c));
  const double density = Spec::parse(c.spec)->density;
  const DType type = Spec::parse(c.spec)->values;
  std::vector<std::vector<std::vector<float>>> residuals(static_cast<std::size_t>(c.ranks));
  for (auto& own : residuals) {
    for (const std::size_t count : c.counts) own.emplace_back(count);
  }
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    if (factor) scale(program, step, factor);
    if (change) change(program, step);
    std::string failure = program.step(world);
    for (std::size_t t = 0; t < c.counts.size() && failure.empty(); ++t) {
      std::vector<float> sum(c.counts[t]);
      std::vector<float> elected;
      for (int r = 0; r < c.ranks; ++r) {
        std::vector<float>& own = residuals[static_cast<std::size_t>(r)][t];
        for (std::size_t i = 0; i < own.size(); ++i) own[i] += program.gradient(r, t)[i];
        elect(own, elected_of(density, own.size()), type, elected);
        for (std::size_t i = 0; i < own.size(); ++i) sum[i] += elected[i];
        if (program.residual(r, t) != own) failure = fmt::format("rank {}: another residual", r);
      }
      if (program.result(0, t) != sum) failure = "another result";
    }
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
  }
  return world.leaks();
}

}  // namespace

TEST_CASE("top-k elects and sums like the plain algorithm", "[sparse]") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const std::size_t count : {1, 2, 7, 100, 1000, 4099}) {
      for (const char* density : {"0.1", "0.033", "0.011", "0.01", "0.004", "0.001", "1"}) {
        SparseCase c;
        c.ranks = ranks;
        c.counts = {count};
        c.spec = fmt::format("topk:density={}", density);
        CHECK(run_beside_reference(c, 4) == "");
      }
    }
  }
}

TEST_CASE("top-k in several parcels, streamed while it selects", "[sparse]") {
  SparseCase c;
  c.ranks = 3;
  c.counts = {300000};
  c.spec = "topk:density=0.01";
  c.chunk_bytes = 1024;
  CHECK(run_beside_reference(c, 6) == "");
}

TEST_CASE("top-k lists round a ring", "[sparse]") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    SparseCase c;
    c.ranks = ranks;
    c.counts = {3, 0, 100000};
    c.spec = "topk:density=0.01,exchange=ring";
    CHECK(run_beside_reference(c, 3) == "");
  }
}

TEST_CASE("top-k in several parcels round a ring, many tensors", "[sparse]") {
  for (const int ranks : {2, 3, 4, 7}) {
    SparseCase c;
    c.ranks = ranks;
    c.counts = {10, 0, 70000, 3, 150000, 1, 200000};
    c.spec = "topk:density=0.02,exchange=ring";
    c.chunk_bytes = 1024;
    CHECK(run_beside_reference(c, 5) == "");
  }
}

// A forecast that promises too much is replaced, tensor by tensor.
TEST_CASE("top-k follows magnitudes that jump", "[sparse]") {
  const float factors[] = {1, 1, 1, 10, 10, 10, 1, 0.1f, 1000, 1000, 1e-3f, 1, 1, 1};
  const auto jump = [&](std::size_t tensor, int step) {
    return tensor == 1 ? 1.0f : factors[step];
  };
  for (const char* rest : {"exchange=ring", "exchange=direct"}) {
    for (const int ranks : {1, 2, 3}) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {300000, 200000, 100, 150000};
      c.spec = fmt::format("topk:density=0.01,{}", rest);
      c.chunk_bytes = 1024;
      CHECK(run_beside_reference(c, 14, jump) == "");
    }
  }
}

// Each rank's are rounded once, and summed in float32.
TEST_CASE("top-k with 16-bit values", "[sparse]") {
  for (const char* values : {"bf16", "f16"}) {
    for (const char* exchange : {"direct", "ring", "recursive-doubling", "split"}) {
      for (const int ranks : {1, 3}) {
        SparseCase c;
        c.ranks = ranks;
        c.counts = {1000, 0, 70000};
        c.chunk_bytes = 1024;
        c.spec = fmt::format("topk:density=0.01,values={},exchange={}", values, exchange);
        CHECK(run_beside_reference(c, 3) == "");
      }
    }
  }
}

TEST_CASE("gradients that leave top-k little choice", "[sparse]") {
  for (const Change& change : hard_gradients()) {
    for (const char* exchange : {"direct", "ring"}) {
      for (const std::size_t count : {100, 70000}) {
        SparseCase c;
        c.ranks = 3;
        c.counts = {count};
        c.chunk_bytes = 1024;
        c.spec = fmt::format("topk:density=0.05,exchange={}", exchange);
        CHECK(run_beside_reference(c, 4, {}, change) == "");
      }
    }
  }
}

TEST_CASE("sums of top-k lists by shares of the indices", "[sparse]") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    SparseCase c;
    c.ranks = ranks;
    c.counts = {3, 0, 100000};
    c.spec = "topk:density=0.01,exchange=split";
    CHECK(run_beside_reference(c, 3) == "");
  }
}

// Whose sums meet in another order: integers are exact in any.
TEST_CASE("sums of top-k lists by recursive doubling", "[sparse]") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    SparseCase c;
    c.ranks = ranks;
    c.counts = {3, 0, 10000};
    c.spec = "topk:density=0.01,exchange=recursive-doubling";
    c.integers = true;
    CHECK(run_beside_reference(c, 3) == "");
  }
}

TEST_CASE("many tensors in one top-k call", "[sparse]") {
  SparseCase c;
  c.ranks = 4;
  c.counts = {10, 0, 70000, 3, 150000, 1};
  c.spec = "topk:density=0.02";
  c.chunk_bytes = 1024;
  CHECK(run_beside_reference(c, 5) == "");
}

}  // namespace pith::test
