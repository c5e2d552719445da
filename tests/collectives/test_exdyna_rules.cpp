// What the quantile rule and the prefix cut promise: density, peak, balance; and that nothing is
// lost or invented in any mode of a call.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>

#include "kernels/scalar.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// Gradients of one step: of a rank, element by element.
using Draw = std::function<float(std::uint64_t step, int rank, std::size_t i)>;

// Nearly normal, from a hash.
float noise(std::uint64_t seed, std::uint64_t rank, std::uint64_t i) {
  const std::uint64_t bits = random_bits(seed, rank, i);
  float sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<float>(bits >> (16 * part) & 0xffff);
  return (sum / 65536 - 2) * 1.7320508f;
}

// Layers of unequal sizes, whose scales lie far apart.
Draw unequal_layers(std::size_t count) {
  std::vector<float> scales(count);
  std::uint64_t layer = 0;
  for (std::size_t at = 0; at < count; ++layer) {
    const float size = std::exp(noise(1, 0, layer)) * static_cast<float>(count) / 40;
    const std::size_t end = std::min(count, at + 1 + static_cast<std::size_t>(size));
    std::fill(scales.begin() + static_cast<std::ptrdiff_t>(at),
              scales.begin() + static_cast<std::ptrdiff_t>(end),
              1e-3f * std::exp(noise(2, 0, layer)));
    at = end;
  }
  return [scales = std::move(scales)](std::uint64_t step, int rank, std::size_t i) {
    return scales[i] * noise(100 + step, static_cast<std::uint64_t>(rank), i);
  };
}

struct Course {
  std::vector<double> density;  // over the target, by step
  std::vector<double> imbalance;
  std::string failure;

  double mean_density(std::size_t from, std::size_t to) const {
    double sum = 0;
    for (std::size_t t = from; t < to; ++t) sum += density[t];
    return sum / static_cast<double>(to - from);
  }
  double mean_imbalance(std::size_t from) const {
    double sum = 0;
    for (std::size_t t = from; t < imbalance.size(); ++t) sum += imbalance[t];
    return sum / static_cast<double>(imbalance.size() - from);
  }
  double peak() const { return *std::max_element(density.begin(), density.end()); }
  std::string text() const {
    return fmt::format("d'/d {:.3f} from step 50 on, peak {:.2f}, f {:.3f}; {}",
                       mean_density(50, density.size()), peak(), mean_imbalance(50), failure);
  }
};

Course follow(const SparseCase& c, const Draw& draw, std::size_t steps) {
  SparseProgram program(c);
  SimConfig config;
  config.ranks = c.ranks;
  World world(config);
  Course course;
  const double k = static_cast<double>(elected_of(Spec::parse(c.spec)->density, c.counts[0]));
  for (std::size_t step = 0; step < steps && course.failure.empty(); ++step) {
    for (int r = 0; r < c.ranks; ++r) {
      std::vector<float>& gradient = program.gradient(r);
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = draw(step, r, i);
    }
    course.failure = program.step(world);
    const CompressorStats& stats = program.compressor(0).stats;
    course.density.push_back(static_cast<double>(stats.selected_union) / k);
    course.imbalance.push_back(stats.imbalance);
    const double lambda = program.compressor(0).exdyna.threshold().lambda();
    for (int r = 1; r < c.ranks; ++r) {
      if (program.compressor(r).exdyna.threshold().lambda() != lambda) {
        course.failure = fmt::format("rank {}: another lambda", r);
      }
    }
  }
  return course;
}

void check_density(const Course& course) {
  INFO(course.text());
  CHECK(course.failure == "");
  CHECK(course.peak() < 3);
  for (std::size_t t = 50; t + 10 <= course.density.size(); t += 10) {
    CHECK(course.mean_density(t, t + 10) == Approx(1).margin(0.1));
  }
}

}  // namespace

TEST_CASE("the quantile rule keeps the density, the prefix cut the balance", "[sparse][exdyna]") {
  SparseCase c;
  c.ranks = 8;
  c.counts = {1 << 16};
  c.spec = "exdyna:density=0.02";
  for (const std::size_t chunk_bytes : {std::size_t{64} << 10, std::size_t{128}}) {
    c.chunk_bytes = chunk_bytes;  // one round, and many
    const Course course = follow(c, unequal_layers(c.counts[0]), 120);
    check_density(course);
    CHECK(course.mean_imbalance(50) < 1.15);
  }
}

TEST_CASE("the quantile rule at a low density, and without blocks", "[sparse][exdyna]") {
  for (const char* spec : {"exdyna:density=0.005", "micro:density=0.005"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {200000};
    c.spec = spec;
    const Course course = follow(c, unequal_layers(c.counts[0]), 100);
    check_density(course);
  }
}

TEST_CASE("ExDyna on real gradients", "[sparse][exdyna]") {
  constexpr std::size_t count = 12800;
  constexpr int workers = 4;
  std::vector<std::uint16_t> codes(workers * count);
  std::FILE* file = std::fopen(PITH_TEST_DATA "/bytes-transformer.f16", "rb");
  REQUIRE(file);
  REQUIRE(std::fread(codes.data(), 2, codes.size(), file) == codes.size());
  std::fclose(file);
  const Draw draw = [&](std::uint64_t step, int rank, std::size_t i) {
    const std::size_t worker = (static_cast<std::size_t>(rank) + step * step) % workers;
    return kernels::scalar::decode<kernels::Float16>(codes[worker * count + i]) / 32768;
  };
  SparseCase c;
  c.ranks = workers;
  c.counts = {count};
  c.spec = "exdyna:density=0.02";
  const Course course = follow(c, draw, 150);
  check_density(course);
}

}  // namespace pith::test
