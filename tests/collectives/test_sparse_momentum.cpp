// Momentum correction and the filter of residuals, beyond what every scheme must do
// (test_schemes.cpp): calls that are undone, scaled and saved, clipping, and dense calls.
#include <cmath>

#include "compress/saved_state.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/ar_topk_reference.hpp"
#include "tests/collectives/largest.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

std::vector<float> velocity_of(const Compressor& compressor) {
  std::vector<float> velocity(compressor.count());
  compressor.velocity->memory().copy_to(reinterpret_cast<std::byte*>(velocity.data()));
  return velocity;
}

// Steps that have been made, and the gradients of the next one.
void begin(SparseProgram& program, World& world, int steps) {
  REQUIRE(program.begin(world, steps) == "");
}

}  // namespace

TEST_CASE("a call that is undone has corrected momentum and sent nothing", "[sparse][momentum]") {
  SparseProgram program(one_tensor("dgc:density=0.1,warmup=9", 2, 500));
  World world(world_of(program.sparse_case()));
  begin(program, world, 3);
  std::vector<std::vector<float>> velocities, residuals;
  for (int r = 0; r < 2; ++r) {
    velocities.push_back(program.added(r));
    residuals.push_back(program.owed(r));
  }
  const double density = program.compressor(0).spec().density;
  REQUIRE(program.step(world) == "");
  HostCompute host;
  for (int r = 0; r < 2; ++r) {
    Compressor& compressor = program.compressor(r);
    CHECK(velocity_of(compressor) != velocities[static_cast<std::size_t>(r)]);
    CHECK(compressor.spec().density < density);
    compressor.return_after(host, 3);
    CHECK(velocity_of(compressor) == velocities[static_cast<std::size_t>(r)]);
    CHECK(program.residual(r) == residuals[static_cast<std::size_t>(r)]);
    CHECK(compressor.step == 3);
    CHECK(compressor.spec().density == density);
  }
}

TEST_CASE("a call that fails before it begins corrects momentum, too", "[sparse][momentum]") {
  SparseProgram program(one_tensor("dgc:density=0.1", 2, 500));
  World world(world_of(program.sparse_case()));
  begin(program, world, 2);
  const std::vector<float> velocity = program.added(0);
  const std::vector<float> residual = program.owed(0);
  CompressedTensor tensor;
  tensor.compressor = &program.compressor(0);
  tensor.send = reinterpret_cast<const std::byte*>(program.gradient(0).data());
  tensor.count = 500;
  HostCompute host;
  absorb_gradients(host, 3, {&tensor, 1});
  CHECK(velocity_of(program.compressor(0)) == velocity);
  CHECK(program.residual(0) == residual);
}

TEST_CASE("a change of scale reaches velocities, and what left them", "[sparse][momentum]") {
  SparseProgram program(one_tensor("dgc:density=0.2", 2, 500));
  World world(world_of(program.sparse_case()));
  begin(program, world, 2);
  std::vector<float> velocity = program.added(0);
  REQUIRE(program.step(world) == "");
  HostCompute host;
  Compressor& compressor = program.compressor(0);
  compressor.scale(host, 4);
  compressor.return_after(host, 2);
  for (float& value : velocity) value *= 4;
  CHECK(velocity_of(compressor) == velocity);
}

TEST_CASE("a reset forgets velocities", "[sparse][momentum]") {
  SparseProgram program(one_tensor("dgc:density=0.2,warmup=4", 2, 500));
  World world(world_of(program.sparse_case()));
  const double density = program.compressor(0).spec().density;
  begin(program, world, 2);
  Compressor& compressor = program.compressor(0);
  compressor.reset();
  CHECK_FALSE(compressor.velocity);
  CHECK(compressor.spec().density == density);
  compressor.shape(500, DType::f32);
  CHECK(velocity_of(compressor) == std::vector<float>(500));
}

TEST_CASE("saved bytes have velocities, and load adds them", "[sparse][momentum]") {
  SparseProgram program(one_tensor("dgc:density=0.2", 2, 300));
  World world(world_of(program.sparse_case()));
  begin(program, world, 3);
  const Compressor& from = program.compressor(0);
  std::vector<std::byte> bytes(saved_bytes(from));
  save(from, bytes.data());
  HostCompute host;
  auto to = std::move(*Compressor::create(from.spec().text()));
  REQUIRE_FALSE(load(*to, host, bytes));
  CHECK(velocity_of(*to) == velocity_of(from));
  REQUIRE_FALSE(load(*to, host, bytes));
  std::vector<float> twice = velocity_of(from);
  for (float& value : twice) value *= 2;
  CHECK(velocity_of(*to) == twice);
  bytes.resize(bytes.size() - 300 * sizeof(float));
  CHECK(load(*to, host, bytes));
}

// Of integers sums of squares are exact.
TEST_CASE("gradients beyond a rank's part of the norm are scaled down together",
          "[sparse][momentum]") {
  for (const double clip : {16384.0, 0.125}) {
    SparseCase c;
    c.spec = fmt::format("dgc:density=1,clip={}", clip);
    c.ranks = 4;
    c.counts = {300, 0, 50};
    c.integers = true;
    SparseProgram program(c);
    World world(world_of(c));
    program.draw(0);
    std::vector<float> factors;
    for (int r = 0; r < c.ranks; ++r) {
      double squares = 0;
      for (std::size_t t = 0; t < c.counts.size(); ++t) {
        for (const float value : program.gradient(r, t)) squares += double(value) * double(value);
      }
      // Half of the norm: there are four ranks.
      const double norm = std::sqrt(squares);
      factors.push_back(norm > clip / 2 ? static_cast<float>(clip / 2 / norm) : 1.0f);
    }
    CHECK((factors[0] == 1) == (clip > 1));
    REQUIRE(program.step(world) == "");
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      std::vector<float> sum(c.counts[t]);
      for (int r = 0; r < c.ranks; ++r) {
        const std::vector<float>& gradient = program.gradient(r, t);
        const float factor = factors[static_cast<std::size_t>(r)];
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * gradient[i];
      }
      CHECK(program.result(0, t) == sum);
    }
  }
}

// As momentum on the sum of all ranks' gradients.
TEST_CASE("dense calls keep velocities", "[sparse][momentum]") {
  SparseCase c = one_tensor("dgc:density=0.5,momentum=0.5,bypass=auto", 2, 40);
  c.integers = true;
  SparseProgram program(c);
  World world(world_of(c));
  std::vector<float> velocity(40);
  for (std::uint64_t step = 0; step < 3; ++step) {
    program.draw(step);
    for (std::size_t i = 0; i < velocity.size(); ++i) {
      velocity[i] = 0.5f * velocity[i] + program.gradient(0)[i] + program.gradient(1)[i];
    }
    REQUIRE(program.step(world) == "");
    REQUIRE(program.residual(0) == std::vector<float>(40));
    CHECK(program.result(0) == velocity);
  }
}

// The paper's memory m is beta times the residual. Of integers and parts that are powers of two all
// sums are exact.
TEST_CASE("a filtered residual is what the paper's memory says", "[sparse][low-pass]") {
  constexpr std::size_t count = 200;
  constexpr float beta = 0.25f;
  SparseCase c = one_tensor("clt-k:density=0.1,beta=0.25,bypass=never", 3, count);
  c.integers = true;
  SparseProgram program(c);
  World world(world_of(c));
  std::vector<std::vector<float>> memories(3, std::vector<float>(count));
  for (std::uint64_t step = 0; step < 6; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    std::vector<float> magnitudes(count);
    const std::size_t leader = step % 3;
    for (std::size_t i = 0; i < count; ++i) {
      magnitudes[i] = std::fabs(memories[leader][i] + program.gradient(int(leader))[i]);
    }
    std::vector<float> sent(count);
    for (const std::size_t i : largest(magnitudes, count / 10)) sent[i] = 1;
    std::vector<float> sums(count);
    for (int r = 0; r < 3; ++r) {
      std::vector<float>& m = memories[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < count; ++i) {
        const float g = program.gradient(r)[i];
        const float left = sent[i] * (m[i] + g);
        sums[i] += left;
        m[i] += beta * (g - left);
        REQUIRE(program.residual(r)[i] * beta == m[i]);
      }
    }
    CHECK(program.result(0) == sums);
  }
}

TEST_CASE("residuals are filtered beside what is not finite, in groups", "[sparse][low-pass]") {
  for (const char* spec : {"clt-k:density=0.1,beta=0.25", "clt-k:density=0.1,beta=0.5,values=bf16",
                           "clt-k:density=0.1,beta=0.5,reduction=ring,nonfinite=drop"}) {
    for (const int ranks : {1, 2, 5}) {
      SparseCase c = one_tensor(spec, ranks, 500);
      c.counts = {300, 0, 5, 70'000};
      c.integers = true;  // a ring's sums are of another order
      CAPTURE(spec, ranks);
      SparseProgram program(c);
      ArTopkReference reference(program.sparse_case());
      World world(world_of(c));
      for (std::uint64_t step = 0; step < 7; ++step) {
        program.draw(step);
        if (step == 3) program.gradient(ranks - 1, 3)[7] = std::nanf("");
        REQUIRE(program.step(world) == "");
        REQUIRE(reference.check(program) == "");
      }
    }
  }
}

TEST_CASE("a dense call sends what its filter lets through", "[sparse][low-pass]") {
  SparseCase c = one_tensor("clt-k:density=0.9,beta=0.25,bypass=auto", 2, 40);
  c.integers = true;
  SparseProgram program(c);
  World world(world_of(c));
  std::vector<float> left(40, 8.0f);
  HostCompute host;
  for (int r = 0; r < 2; ++r) {
    program.compressor(r).shape(40, DType::f32);
    program.compressor(r).add_saved(host, reinterpret_cast<const std::byte*>(left.data()), nullptr);
  }
  for (std::uint64_t step = 0; step < 3; ++step) {
    const float before = left[7];
    for (float& value : left) value *= 0.75f;
    program.draw(step);
    REQUIRE(program.step(world) == "");
    CHECK(program.residual(0) == left);
    const float sent = program.gradient(0)[7] + program.gradient(1)[7] + 2 * 0.25f * before;
    CHECK(program.result(0)[7] == sent);
  }
}

}  // namespace pith::test
