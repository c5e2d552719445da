// The demo's model: its products against plain loops, its gradient against finite differences.
#include "tools/demo/model.hpp"

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tools/demo/gemm.hpp"

namespace {

using pith::demo::MatrixView;
using pith::demo::Model;
using pith::demo::Samples;

std::vector<float> random_floats(std::size_t count, std::mt19937_64& random) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<double>(random() >> 11U) * 0x1p-52 - 1.0);
  }
  return values;
}

Samples random_samples(std::size_t count, std::mt19937_64& random) {
  Samples samples;
  samples.images = random_floats(count * pith::demo::image_pixels, random);
  for (std::size_t i = 0; i < count; ++i) {
    samples.labels.push_back(static_cast<std::uint8_t>(random() % pith::demo::class_count));
  }
  return samples;
}

double element(const MatrixView& view, std::size_t row, std::size_t column) {
  return static_cast<double>(view.data[row * view.row_stride + column * view.column_stride]);
}

}  // namespace

TEST_CASE("the demo's matrix product equals a plain one") {
  std::mt19937_64 random(7);
  // Around the tile of 4 x 16 or 32 and the inner block of 256, with either operand transposed.
  for (const std::size_t rows : {1U, 4U, 7U, 33U}) {
    for (const std::size_t columns : {1U, 10U, 16U, 35U, 64U}) {
      for (const std::size_t inner : {1U, 32U, 256U, 300U}) {
        const std::vector<float> a = random_floats(rows * inner, random);
        const std::vector<float> b = random_floats(inner * columns, random);
        const std::vector<float> bias = random_floats(columns, random);
        for (int transposed = 0; transposed < 4; ++transposed) {
          const MatrixView left = (transposed & 1) != 0 ? MatrixView{a.data(), 1, rows}
                                                        : MatrixView{a.data(), inner, 1};
          const MatrixView right = (transposed & 2) != 0 ? MatrixView{b.data(), 1, inner}
                                                         : MatrixView{b.data(), columns, 1};
          std::vector<float> result(rows * columns, NAN);
          pith::demo::multiply({rows, columns, inner}, left, right, bias.data(), result.data());
          double worst = 0.0;
          for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
              double sum = static_cast<double>(bias[j]);
              for (std::size_t k = 0; k < inner; ++k) {
                sum += element(left, i, k) * element(right, k, j);
              }
              const double gap = std::abs(sum - static_cast<double>(result[i * columns + j]));
              worst = gap <= worst ? worst : gap;  // a NaN stays
            }
          }
          REQUIRE(worst < 1e-4);
        }
      }
    }
  }
}

TEST_CASE("the demo's gradient agrees with finite differences") {
  std::mt19937_64 random(11);
  Model model({pith::demo::image_pixels, 24, 20, pith::demo::class_count});
  std::vector<float> parameters = model.initial_parameters(3);
  const Samples samples = random_samples(9, random);
  std::vector<float> gradient(model.parameter_count());
  model.differentiate(parameters, samples, gradient, [](std::size_t, std::size_t) {});

  const auto mean_loss = [&] {
    return model.evaluate(parameters, samples).loss_sum / static_cast<double>(samples.size());
  };
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t at = 0; at < parameters.size(); ++at) {
    const float saved = parameters[at];
    const float step = 1e-3F;
    parameters[at] = saved + step;
    const double above = mean_loss();
    parameters[at] = saved - step;
    const double below = mean_loss();
    const double width = static_cast<double>(saved + step) - static_cast<double>(saved - step);
    parameters[at] = saved;
    const double gap = (above - below) / width - static_cast<double>(gradient[at]);
    difference += gap * gap;
    norm += static_cast<double>(gradient[at]) * static_cast<double>(gradient[at]);
  }
  CAPTURE(std::sqrt(difference), std::sqrt(norm));
  REQUIRE(std::sqrt(difference / norm) < 0.01);
}

TEST_CASE("the demo's gradient is announced once per element, last layer first") {
  std::mt19937_64 random(13);
  Model model({pith::demo::image_pixels, 40, pith::demo::class_count}, 1000);  // at most 250 floats
  const std::vector<float> parameters = model.initial_parameters(3);
  const Samples samples = random_samples(5, random);
  std::vector<float> gradient(model.parameter_count());
  std::vector<int> announced(model.parameter_count(), 0);
  std::vector<float> first_seen(model.parameter_count());
  std::vector<std::size_t> begins;
  model.differentiate(parameters, samples, gradient, [&](std::size_t begin, std::size_t count) {
    begins.push_back(begin);
    for (std::size_t at = begin; at < begin + count; ++at) {
      ++announced[at];
      first_seen[at] = gradient[at];
    }
  });
  REQUIRE(announced == std::vector<int>(model.parameter_count(), 1));
  REQUIRE(first_seen == gradient);
  REQUIRE(begins.size() > 2);
  REQUIRE(begins.front() >= pith::demo::image_pixels * 40);
}
