// quantise=: what a sample says that coding loses, and calls in a form.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/sparse/coding_loss.hpp"
#include "compress/scheme.hpp"
#include "kernels/host_compute.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

std::vector<float> drawn(std::size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.01F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

double lost_by(const Coding& coding, const std::vector<float>& values, std::uint64_t key) {
  HostCompute host;
  std::vector<std::byte> coded(coding.bytes(values.size()));
  std::vector<float> decoded(values.size());
  host.run<EncodeValuesKernel>({coding, {1, key, 0}, values.data(), values.size(), coded.data()});
  host.run<DecodeValuesKernel>({coding, coded.data(), values.size(),
                                reinterpret_cast<std::byte*>(decoded.data()), DType::f32, 1});
  double lost = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    lost += std::pow(double(decoded[i]) - double(values[i]), 2);
  }
  return lost;
}

}  // namespace

TEST_CASE("what coding loses is known from the magnitudes", "[sparse][form]") {
  const std::vector<float> values = drawn(100'000);
  std::vector<float> magnitudes = values;
  for (float& one : magnitudes) one = std::abs(one);
  HostCompute host;
  for (const char* text : {"qsgd", "qsgd:bits=2", "qsgd:bits=8,bucket=4096", "int8", "fp8", "fp16",
                           "natural", "terngrad", "efsign", "3lc"}) {
    INFO(text);
    const Coding coding = *coding_of(*Spec::parse(text));
    double mean = 0;
    for (std::uint64_t key = 1; key <= 4; ++key) mean += lost_by(coding, values, key) / 4;
    CHECK(squares_lost(host, coding, magnitudes) == Approx(mean).epsilon(0.02));
  }
  CHECK(squares_lost(host, *coding_of(*Spec::parse("bf16")), magnitudes) == 0);
}

TEST_CASE("nothing loses nothing", "[sparse][form]") {
  const Coding coding = *coding_of(*Spec::parse("qsgd"));
  HostCompute host;
  CHECK(squares_lost(host, coding, std::vector<float>(1000, 0.0F)) == 0);
  CHECK(squares_lost(host, coding, std::vector<float>(1000, 0.3F)) == Approx(0).margin(1e-9));
  CHECK(squares_lost(host, coding, {}) == 0);
}

// A call in a form delivers what the scheme of that name does, residuals included, and says so.
TEST_CASE("a call in a form is that of the scheme of that name", "[sparse][form]") {
  const std::pair<const char*, const char*> all[] = {
      {"bf16", "bf16"}, {"qsgd8", "qsgd:bits=8"}, {"qsgd4", "qsgd:bits=4"}};
  for (const auto& [name, scheme] : all) {
    SparseCase plain;
    plain.ranks = 3;
    plain.counts = {5000, 70, 0};
    plain.spec = scheme;
    SparseCase formed = plain;
    const std::string text = std::string("topk:density=0.01..0.5,quantise=") + name;
    formed.spec = text;
    SparseProgram first(plain);
    SparseProgram second(formed);
    World world_of_first(world_of(plain));
    World world_of_second(world_of(formed));
    INFO(text);
    REQUIRE(first.step(world_of_first) == "");
    REQUIRE(second.step(world_of_second) == "");
    for (std::size_t t = 0; t < plain.counts.size(); ++t) {
      CHECK(first.result(0, t) == second.result(0, t));
      const CompressorStats& stats = second.compressor(0, t).stats;
      CHECK(stats.algorithm == std::string_view(name));
      CHECK_FALSE(stats.bypassed);
      CHECK(stats.selected_union == plain.counts[t]);
      CHECK(second.compressor(0, t).residual_is_zero());
    }
  }
}

// What a form rounds off is zero on average: small elements beside a large one arrive in the end.
TEST_CASE("forms round without bias", "[sparse][form]") {
  for (const char* form : {"qsgd8", "qsgd4"}) {
    SparseCase c;
    c.counts = {512};
    c.spec = std::string("topk:density=0.01..0.5,quantise=") + form;
    SparseProgram program(c);
    World world(world_of(c));
    double sum = 0;
    constexpr int calls = 20;
    for (int call = 0; call < calls; ++call) {
      for (int r = 0; r < c.ranks; ++r) {
        std::vector<float>& gradient = program.gradient(r);
        std::fill(gradient.begin(), gradient.end(), 1.0F / 300);
        gradient[0] = 1;
        Compressor& compressor = program.compressor(r);
        compressor.density_control.next = compressor.step + 1000;
      }
      REQUIRE(program.step(world) == "");
      const std::vector<float>& result = program.result(0);
      sum += std::accumulate(result.begin() + 1, result.end(), 0.0);
    }
    INFO(form);
    CHECK(sum == Approx(calls * c.ranks * 511 / 300.0).epsilon(0.1));
  }
}

// In a call of another kind, too, elements that are not finite are the scheme's matter.
TEST_CASE("a form drops or propagates what is not finite", "[sparse][form]") {
  for (const bool drops : {false, true}) {
    SparseCase c;
    c.counts = {2000};
    c.spec = std::string("topk:density=0.01..0.5,quantise=qsgd8,nonfinite=") +
             (drops ? "drop" : "propagate");
    SparseProgram program(c);
    World world(world_of(c));
    program.draw(0);
    program.gradient(1)[700] = std::numeric_limits<float>::infinity();
    REQUIRE(program.step(world) == "");
    INFO(c.spec);
    const std::vector<float>& result = program.result(0);
    const auto bad = std::ranges::count_if(result, [](float one) { return std::isnan(one); });
    CHECK(bad == (drops ? 0 : std::ssize(result)));
    CHECK(program.compressor(0).residual_is_zero() == drops);
  }
}

}  // namespace pith::test
