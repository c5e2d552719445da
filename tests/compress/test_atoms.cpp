// ATOMO's atoms: singular values, the probabilities of algorithm 1, and what draws are on average.
#include <cmath>
#include <random>

#include "compress/low_rank/atoms.hpp"
#include "compress/low_rank/given_matrices.hpp"
#include "core/mix.hpp"
#include "tests/catch.hpp"
#include "tests/reference/jacobi.hpp"

namespace pith::test {

namespace {

// Normal numbers; with `directions` of only so many, as gradients often have.
std::vector<float> matrix(std::size_t rows, std::size_t columns, std::size_t directions = 0) {
  std::mt19937 generator(static_cast<unsigned>(rows * 1000 + columns));
  std::normal_distribution<float> normal;
  std::vector<float> elements(rows * columns);
  if (directions == 0) {
    for (float& element : elements) element = normal(generator);
    return elements;
  }
  for (std::size_t k = 0; k < directions; ++k) {
    std::vector<float> left(rows);
    std::vector<float> right(columns);
    for (float& one : left) one = normal(generator) / static_cast<float>(1 + k * k);
    for (float& one : right) one = normal(generator);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) elements[i * columns + j] += left[i] * right[j];
    }
  }
  return elements;
}

double squares(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double(value) * double(value);
  return sum;
}

// The drawn matrix; `atoms`: how many it has.
std::vector<float> drawn(AtomDraw& draw, const std::vector<float>& elements,
                         const FactorShape& shape, std::uint64_t key, std::size_t& atoms) {
  AtomList list;
  CHECK_FALSE(draw.append(elements.data(), shape, key, list));
  REQUIRE(list.counts.size() == 1);
  atoms = list.counts[0];
  const auto [rows, columns, rank] = shape;
  REQUIRE(list.numbers.size() == atoms * (rows + columns));
  std::vector<float> sum(rows * columns);
  for (std::size_t k = 0; k < atoms; ++k) {
    const float* const left = list.numbers.data() + k * rows;
    const float* const right = list.numbers.data() + atoms * rows + k * columns;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) sum[i * columns + j] += left[i] * right[j];
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("singular values are those of Jacobi's rotations", "[atoms]") {
  Spectrum spectrum;
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{1, 1},
                                      {1, 9},
                                      {9, 1},
                                      {7, 5},
                                      {5, 7},
                                      {16, 16},
                                      {3, 700},
                                      {700, 3},
                                      {24, 300}}) {
    INFO(rows << " x " << columns);
    const std::vector<float> elements = matrix(rows, columns);
    const Svd expected = jacobi_svd(elements.data(), rows, columns);
    REQUIRE_FALSE(spectrum.decompose(elements.data(), {rows, columns}));
    const std::span<const double> values = spectrum.values();
    const std::size_t side = std::min(rows, columns);
    REQUIRE(values.size() == side);
    for (std::size_t i = 0; i < side; ++i) {
      CHECK(std::fabs(values[i] - expected.values[i]) < 1e-7 * values[0]);
      double along = 0;
      for (std::size_t k = 0; k < side; ++k) {
        along += spectrum.vector(i)[k] * expected.vectors[i * side + k];
      }
      CHECK(std::fabs(std::fabs(along) - 1) < 1e-6);
    }
  }
}

TEST_CASE("singular vectors are orthonormal, whatever the matrix", "[atoms]") {
  Spectrum spectrum;
  for (const float scale : {0.0f, 1e-30f, 1.0f, 1e38f}) {
    for (const std::size_t directions : {1, 3}) {
      std::vector<float> elements = matrix(20, 30, directions);
      for (float& element : elements) element = element * 0.01f * scale;
      REQUIRE_FALSE(spectrum.decompose(elements.data(), {20, 30}));
      for (std::size_t i = 0; i < 20; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
          double along = 0;
          for (std::size_t k = 0; k < 20; ++k) {
            along += spectrum.vector(i)[k] * spectrum.vector(j)[k];
          }
          CHECK(std::fabs(along - (i == j ? 1 : 0)) < 1e-12);
        }
      }
      CHECK(spectrum.values()[directions] <= 1e-7 * spectrum.values()[0]);
    }
  }
}

TEST_CASE("probabilities add up to the budget, and none is above 1", "[atoms]") {
  const auto of = [](const std::vector<double>& values, double budget) {
    std::vector<double> p(values.size());
    keep_probabilities(values, budget, p);
    return p;
  };
  CHECK(of({4, 2, 1, 1}, 1) == std::vector<double>{0.5, 0.25, 0.125, 0.125});
  // The first has more than its share, and leaves half of the budget to the others.
  CHECK(of({8, 2, 1, 1}, 2) == std::vector<double>{1, 0.5, 0.25, 0.25});
  // Then the second has.
  CHECK(of({8, 4, 1, 1}, 3) == std::vector<double>{1, 1, 0.5, 0.5});
  CHECK(of({3, 2, 1}, 3) == std::vector<double>{1, 1, 1});
  CHECK(of({3, 2, 1}, 7) == std::vector<double>{1, 1, 1});
  CHECK(of({3, 0, 0}, 2) == std::vector<double>{1, 0, 0});
  CHECK(of({0, 0}, 2) == std::vector<double>{0, 0});
  CHECK(of({}, 2).empty());
}

TEST_CASE("a budget of all singular values sends the matrix", "[atoms]") {
  AtomDraw draw;
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{6, 40}, {40, 6}}) {
    const std::vector<float> elements = matrix(rows, columns);
    std::size_t atoms = 0;
    const std::vector<float> sent = drawn(draw, elements, {rows, columns, 6}, 1, atoms);
    CHECK(atoms == 6);
    for (std::size_t i = 0; i < sent.size(); ++i) CHECK(std::fabs(sent[i] - elements[i]) < 1e-5f);
  }
}

TEST_CASE("drawn matrices are right on average, with the variance of the paper", "[atoms]") {
  constexpr std::size_t draws = 4000;
  AtomDraw draw;
  for (const std::size_t rank : {1, 3}) {
    for (const std::size_t directions : {0, 4}) {
      const FactorShape shape{8, 12, rank};
      const std::vector<float> elements = matrix(8, 12, directions);
      Spectrum spectrum;
      REQUIRE_FALSE(spectrum.decompose(elements.data(), {8, 12}));
      std::vector<double> p(8);
      keep_probabilities(spectrum.values(), double(rank), p);
      double variance = 0;  // of one draw: the sum of s^2 (1/p - 1)
      for (std::size_t i = 0; i < 8; ++i) {
        const double value = spectrum.values()[i];
        if (value > 1e-6 * spectrum.values()[0]) variance += value * value * (1 / p[i] - 1);
      }
      std::vector<double> mean(elements.size());
      double found = 0;
      double number = 0;
      for (std::uint64_t key = 0; key < draws; ++key) {
        std::size_t atoms = 0;
        const std::vector<float> one = drawn(draw, elements, shape, mix(0, key), atoms);
        number += double(atoms) / draws;
        for (std::size_t i = 0; i < one.size(); ++i) {
          const double off = double(one[i]) - double(elements[i]);
          found += off * off / draws;
          mean[i] += double(one[i]) / draws;
        }
      }
      double bias = 0;
      for (std::size_t i = 0; i < mean.size(); ++i) {
        bias += std::pow(mean[i] - double(elements[i]), 2);
      }
      INFO("rank " << rank << ", directions " << directions);
      CHECK(std::fabs(number - double(rank)) < 0.1);
      CHECK(std::fabs(found - variance) < 0.1 * variance);
      CHECK(bias < 3 * variance / draws);  // as the mean of so many draws has it
      // min(1, rank s / sum) of the authors' program keeps fewer and is worse.
      CHECK(variance < 3 * squares(elements) * double(shape.rows) / double(rank));
    }
  }
}

TEST_CASE("keys draw apart", "[atoms]") {
  AtomDraw draw;
  const std::vector<float> elements = matrix(10, 10);
  AtomList lists[3];
  for (std::uint64_t i = 0; i < 3; ++i) {
    for (std::uint64_t key = 0; key < 30; ++key) {
      const std::uint64_t own = mix(i == 2 ? 1 : 0, key);
      REQUIRE_FALSE(draw.append(elements.data(), {10, 10, 2}, own, lists[i]));
    }
  }
  CHECK(lists[0].numbers == lists[1].numbers);
  CHECK(lists[0].counts != lists[2].counts);
}

TEST_CASE("matrices with large sides are cut into bands", "[atoms]") {
  using Matrices = std::vector<MatrixShape>;
  const Matrices given = {{1000, 1024}, {256, 5000}, {5000, 3}, {0, 7}, {7, 0}, {600, 257}};
  CHECK(in_bands(given, 256) == Matrices{{250, 1024},
                                         {250, 1024},
                                         {250, 1024},
                                         {250, 1024},
                                         {256, 5000},
                                         {5000, 3},
                                         {0, 7},
                                         {7, 0},
                                         {200, 257},
                                         {200, 257},
                                         {200, 257}});
  CHECK(in_bands(given, 65536) == given);
  CHECK(in_bands(Matrices{{3, 5}}, 2) == Matrices{{1, 5}, {2, 5}});
  const Spec spec = *Spec::parse("atomo:side=100");
  const LowRankLayout layout = unstated_layout(spec, 70000);
  CHECK(layout.matrices()[0] == MatrixShape{100, 700});
  CHECK(layout.left_count() + layout.right_count() == unstated_counts(spec, 70000).all());
  CHECK(most_side(*Spec::parse("powersgd")) == LowRankLayout::any_rows);
}

TEST_CASE("more atoms than any draw has are not expected", "[atoms]") {
  CHECK(most_atoms({4, 1000, 3}) == 4);
  CHECK(most_atoms({1000, 1000, 3}) == 44);
  CHECK(most_atoms({1000, 20, 128}) == 20);
}

}  // namespace pith::test
