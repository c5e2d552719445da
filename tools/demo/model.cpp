#include "tools/demo/model.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "tools/demo/gemm.hpp"

namespace pith::demo {
namespace {

// log(sum(exp(logits))), without overflow.
float log_sum_exp(std::span<const float> logits) {
  const float peak = *std::max_element(logits.begin(), logits.end());
  float sum = 0.0F;
  for (const float logit : logits) sum += std::exp(logit - peak);
  return peak + std::log(sum);
}

}  // namespace

Model::Model(std::vector<std::size_t> widths, std::size_t bucket_bytes)
    : bucket_floats_(bucket_bytes / sizeof(float)) {
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::size_t weights = widths[i] * widths[i + 1];
    layers_.push_back({widths[i], widths[i + 1], parameter_count_, parameter_count_ + weights});
    parameter_count_ += weights + widths[i + 1];
  }
  activations_.resize(layers_.size());
}

std::vector<Model::Part> Model::parts() const {
  std::vector<Part> parts;
  parts.reserve(layers_.size());
  for (const Layer& layer : layers_) {
    const std::size_t count = layer.bias_at + layer.outputs - layer.weights_at;
    parts.push_back({layer.weights_at, count, layer.inputs, layer.outputs});
  }
  return parts;
}

std::vector<float> Model::initial_parameters(std::uint64_t seed) const {
  std::vector<float> parameters(parameter_count_, 0.0F);
  std::mt19937_64 random(seed);
  for (const Layer& layer : layers_) {
    const double limit = std::sqrt(6.0 / static_cast<double>(layer.inputs));
    for (std::size_t at = layer.weights_at; at < layer.bias_at; ++at) {
      const double unit = static_cast<double>(random() >> 11U) * 0x1p-53;
      parameters[at] = static_cast<float>(limit * (2.0 * unit - 1.0));
    }
  }
  return parameters;
}

void Model::forward(std::span<const float> parameters, const Samples& samples) {
  const float* inputs = samples.images.data();
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    std::vector<float>& outputs = activations_[index];
    outputs.resize(samples.size() * layer.outputs);
    multiply({samples.size(), layer.outputs, layer.inputs}, {inputs, layer.inputs, 1},
             {parameters.data() + layer.weights_at, layer.outputs, 1},
             parameters.data() + layer.bias_at, outputs.data());
    if (index + 1 < layers_.size()) {
      for (float& value : outputs) value = std::max(value, 0.0F);
    }
    inputs = outputs.data();
  }
}

Evaluation Model::score(const Samples& samples) const {
  const std::size_t classes = layers_.back().outputs;
  Evaluation result;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto logits = std::span(activations_.back()).subspan(i * classes, classes);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    const std::size_t label = samples.labels[i];
    result.loss_sum += static_cast<double>(log_sum_exp(logits) - logits[label]);
    if (static_cast<std::size_t>(best) == label) ++result.correct;
  }
  return result;
}

Evaluation Model::evaluate(std::span<const float> parameters, const Samples& samples) {
  forward(parameters, samples);
  return score(samples);
}

void Model::softmax_minus_target(const Samples& samples) {
  const std::size_t classes = layers_.back().outputs;
  const float share = 1.0F / static_cast<float>(samples.size());
  delta_.resize(samples.size() * classes);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto logits = std::span(activations_.back()).subspan(i * classes, classes);
    const float normaliser = log_sum_exp(logits);
    for (std::size_t j = 0; j < classes; ++j) {
      const float target = j == samples.labels[i] ? 1.0F : 0.0F;
      delta_[i * classes + j] = (std::exp(logits[j] - normaliser) - target) * share;
    }
  }
}

// d weights = inputs^T * delta, one bucket of rows after another; the last one includes the biases.
void Model::layer_gradient(const Layer& layer, const float* inputs, std::size_t count,
                           std::span<float> gradient, const GradientReady& ready) const {
  float* const bias = gradient.data() + layer.bias_at;
  std::fill_n(bias, layer.outputs, 0.0F);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < layer.outputs; ++j) bias[j] += delta_[i * layer.outputs + j];
  }
  const std::size_t rows_max = std::max<std::size_t>(1, bucket_floats_ / layer.outputs);
  for (std::size_t row = 0; row < layer.inputs; row += rows_max) {
    const std::size_t rows = std::min(rows_max, layer.inputs - row);
    const std::size_t begin = layer.weights_at + row * layer.outputs;
    multiply({rows, layer.outputs, count}, {inputs + row, 1, layer.inputs},
             {delta_.data(), layer.outputs, 1}, nullptr, gradient.data() + begin);
    const bool last = row + rows == layer.inputs;
    ready(begin, rows * layer.outputs + (last ? layer.outputs : 0));
  }
}

// delta of the layer below = delta * weights^T, where that layer's ReLU was active.
void Model::propagate(const Layer& layer, const float* weights,
                      const std::vector<float>& activation, std::size_t count) {
  delta_next_.resize(count * layer.inputs);
  multiply({count, layer.inputs, layer.outputs}, {delta_.data(), layer.outputs, 1},
           {weights, 1, layer.outputs}, nullptr, delta_next_.data());
  for (std::size_t i = 0; i < delta_next_.size(); ++i) {
    delta_next_[i] = activation[i] > 0.0F ? delta_next_[i] : 0.0F;
  }
  std::swap(delta_, delta_next_);
}

Evaluation Model::differentiate(std::span<const float> parameters, const Samples& samples,
                                std::span<float> gradient, const GradientReady& ready) {
  forward(parameters, samples);
  softmax_minus_target(samples);
  for (std::size_t index = layers_.size(); index-- > 0;) {
    const Layer& layer = layers_[index];
    const float* const inputs = index == 0 ? samples.images.data() : activations_[index - 1].data();
    layer_gradient(layer, inputs, samples.size(), gradient, ready);
    if (index > 0) {
      propagate(layer, parameters.data() + layer.weights_at, activations_[index - 1],
                samples.size());
    }
  }
  return score(samples);
}

void Sgd::step(std::span<const float> gradient, std::span<float> parameters) {
  velocity.resize(parameters.size(), 0.0F);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    velocity[i] = momentum * velocity[i] + gradient[i];
    parameters[i] -= rate * velocity[i];
  }
}

Model demo_model() { return Model({image_pixels, 1024, 1024, class_count}); }

}  // namespace pith::demo
