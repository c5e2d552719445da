// Matrices as factors of low rank: shapes, what is found of matrices of low rank, and the
// arithmetic that ranks repeat. The rules for all schemes are in test_schemes.cpp.
#include <cmath>
#include <limits>
#include <numeric>

#include "compress/low_rank/factors.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/mode_program.hpp"

namespace pith::test {

namespace {

SparseCase matrix_case(const std::string& spec, int ranks, std::vector<std::size_t> counts) {
  SparseCase c;
  c.spec = spec;
  c.ranks = ranks;
  c.counts = std::move(counts);
  return c;
}

void set_shape(SparseProgram& program, std::size_t tensor, std::span<const MatrixShape> matrices) {
  for (int r = 0; r < program.sparse_case().ranks; ++r) {
    Compressor& compressor = program.compressor(r, tensor);
    compressor.low_rank.layout =
        std::make_shared<LowRankLayout>(matrices, rank_of(compressor.spec()));
  }
}

double norm_of(std::span<const float> values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

}  // namespace

TEST_CASE("a vector is cut into factors and what is too small for them", "[low_rank]") {
  const std::vector<MatrixShape> matrices = {{64, 1}, {3, 0}, {100, 60}, {200, 40}, {8, 8}, {1, 5}};
  const LowRankLayout layout(matrices, 4);
  REQUIRE(layout.parts().size() == 4);
  CHECK(layout.count() == 64 + 6000 + 8000 + 64 + 5);
  CHECK_FALSE(layout.parts()[0].is_factored());
  CHECK(layout.parts()[1].shape.rows == 100);
  CHECK(layout.parts()[1].begin == 64);
  CHECK(layout.parts()[2].left == 64 + 400);
  CHECK(layout.parts()[2].right == 240);
  CHECK(layout.parts()[3].count == 69);
  CHECK(layout.left_count() == 64 + 400 + 800 + 69);
  CHECK(layout.right_count() == 240 + 160);
  CHECK(layout.digest() != LowRankLayout(std::span(matrices).first(5), 4).digest());
  for (const std::size_t count : {0, 1, 2, 99, 100, 5000, 99999}) {
    const LowRankLayout square = LowRankLayout::square(count, 2);
    CHECK(square.count() == count);
    CHECK(square.left_count() + square.right_count() ==
          LowRankLayout::square_counts(count, 2).all());
    CHECK(square.left_count() + square.right_count() <= std::max<std::size_t>(count, 1));
  }
}

TEST_CASE("columns become orthonormal, or zero", "[low_rank]") {
  constexpr std::size_t rows = 50;
  constexpr std::size_t rank = 4;
  std::vector<float> left(rows * rank);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto x = static_cast<float>(i);
    left[i * rank] = 1e-20f * std::sin(x);
    left[i * rank + 1] = 1e20f * std::cos(x);
    left[i * rank + 2] = 3 * left[i * rank] / 1e-20f + 2 * left[i * rank + 1] / 1e20f;
    left[i * rank + 3] = x;
  }
  std::vector<double> room(left.size());
  orthonormalise(rows, rank, left.data(), room.data());
  for (std::size_t a = 0; a < rank; ++a) {
    for (std::size_t b = 0; b < rank; ++b) {
      double sum = 0;
      for (std::size_t i = 0; i < rows; ++i) {
        sum += double(left[i * rank + a]) * double(left[i * rank + b]);
      }
      CHECK(std::fabs(sum - (a == b && a != 2 ? 1 : 0)) < 1e-6);
    }
  }
}

TEST_CASE("right factors are scaled, and drawn anew where they are zero", "[low_rank]") {
  const MatrixShape matrix{40, 40};
  const LowRankLayout layout(std::span(&matrix, 1), 3);
  std::vector<float> right(layout.right_count());
  draw_right(layout, 7, right.data());
  const double size = norm_of(right) / std::sqrt(double(right.size()));
  CHECK(size > 0.4);
  CHECK(size < 0.7);
  std::vector<float> renewed = right;
  for (std::size_t j = 0; j < 40; ++j) {
    renewed[j] *= 0x1p90f;
    renewed[40 + j] = 0;
  }
  renew_right(layout, 7, 1, renewed.data());
  const float scale = renewed[0] / right[0];
  for (std::size_t j = 0; j < 40; ++j) CHECK(renewed[j] == scale * right[j]);
  CHECK(norm_of(std::span(renewed).subspan(40, 40)) > 1);
  CHECK(renewed[40] != right[40]);
}

// Two steps are enough: the second begins with the right factor that the first found.
TEST_CASE("matrices of low rank arrive whole, whatever their shapes", "[low_rank]") {
  const std::vector<MatrixShape> matrices = {{1, 30}, {90, 200}, {300, 50}, {7, 1}};
  SparseProgram program(matrix_case("powersgd:rank=2", 3, {30 + 18000 + 15000 + 7, 5000}));
  set_shape(program, 0, matrices);
  World world(world_of(program.sparse_case()));
  for (std::uint64_t step = 0; step < 4; ++step) {
    program.draw(step);
    for (int r = 0; r < 3; ++r) {
      std::size_t at = 0;
      for (const auto& [rows, columns] : matrices) {
        for (std::size_t i = 0; i < rows * columns; ++i, ++at) {
          const std::size_t whole = i / columns;
          const auto row = static_cast<float>(whole);
          const auto column = static_cast<float>(i % columns);
          const auto own = static_cast<float>(r + 1);
          program.gradient(r)[at] =
              std::sin(row) * std::cos(own * column) + std::cos(row) * std::sin(own + column);
        }
      }
    }
    REQUIRE(program.step(world) == "");
    if (step == 0) continue;
    for (int r = 0; r < 3; ++r) {
      CHECK(norm_of(program.residual(r)) < 1e-3);
      CHECK(program.compressor(r).stats.squares_sent > 0);
    }
    float worst = 0;
    for (std::size_t i = 0; i < program.result(0).size(); ++i) {
      float sum = 0;
      for (int r = 0; r < 3; ++r) sum += program.gradient(r)[i];
      worst = std::max(worst, std::fabs(sum - program.result(0)[i]));
    }
    CHECK(worst < 1e-3f);
  }
}

TEST_CASE("what a call sends of a matrix is its messages' size", "[low_rank]") {
  const MatrixShape matrix{400, 300};
  SparseProgram program(matrix_case("powersgd:rank=3", 2, {120000}));
  set_shape(program, 0, std::span(&matrix, 1));
  World world(world_of(program.sparse_case()));
  program.draw(0);
  REQUIRE(program.step(world) == "");
  CHECK(program.compressor(0).stats.bytes_sent == 4 * (3 * (400 + 300) + 1));
}

TEST_CASE("gradients as large as float32 allows stay in range", "[low_rank]") {
  SparseProgram program(matrix_case("powersgd", 2, {10000}));
  World world(world_of(program.sparse_case()));
  for (std::uint64_t step = 0; step < 4; ++step) {
    program.draw(step);
    for (int r = 0; r < 2; ++r) {
      for (float& value : program.gradient(r)) value *= 1e33f;
    }
    REQUIRE(program.step(world) == "");
    CHECK(std::isfinite(program.result(0)[17]));
  }
}

TEST_CASE("a call that is undone returns its factors at the present scale", "[low_rank]") {
  for (const char* spec : {"powersgd:rank=2", "powersgd:rank=2,start=1"}) {
    SparseProgram program(matrix_case(spec, 2, {4000}));
    World world(world_of(program.sparse_case()));
    std::vector<float> owed(4000);
    for (std::uint64_t step = 0; step < 2; ++step) {
      program.draw(step);
      for (std::size_t i = 0; i < owed.size(); ++i) owed[i] += program.gradient(0)[i];
      REQUIRE(program.step(world) == "");
    }
    HostCompute host;
    Compressor& compressor = program.compressor(0);
    compressor.scale(host, 0.5f);
    compressor.return_after(host, 0);  // both calls
    CHECK(compressor.step == 0);
    const std::vector<float> rest = program.residual(0);
    for (std::size_t i = 0; i < owed.size(); ++i) CHECK(std::fabs(rest[i] - owed[i] / 2) < 1e-5f);
  }
}

TEST_CASE("ranks with other shapes have other digests", "[low_rank]") {
  SparseProgram program(matrix_case("powersgd", 2, {6000}));
  const MatrixShape matrix{60, 100};
  program.compressor(1).low_rank.layout =
      std::make_shared<LowRankLayout>(std::span(&matrix, 1), std::size_t{4});
  CHECK(program.compressor(0).digest() != program.compressor(1).digest());
  CHECK_FALSE(program.compressor(1).check(6000, DType::f32));
  const std::string message = program.compressor(1).check(5999, DType::f32).message();
  CHECK(message == "count is 5999, expected 6000, the elements of its matrices");
}

}  // namespace pith::test
