// A multi-layer perceptron with ReLU and softmax cross entropy, all in float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tools/demo/dataset.hpp"

namespace pith::demo {

struct Evaluation {
  double loss_sum = 0.0;
  std::size_t correct = 0;
};

// Parameters and gradients are flat vectors with the same layout, owned by the caller: layer by
// layer, the weights [inputs][outputs] and then the biases [outputs].
class Model {
 public:
  // Called with [begin, begin + count) of the gradient as soon as it is final.
  using GradientReady = std::function<void(std::size_t begin, std::size_t count)>;

  // `widths`: the number of inputs, of units in each hidden layer, and of classes. A layer's
  // gradient is announced in pieces of at most `bucket_bytes`, but at least one row.
  explicit Model(std::vector<std::size_t> widths, std::size_t bucket_bytes = 1U << 20U);

  std::size_t parameter_count() const { return parameter_count_; }

  // The range of each layer's parameters, weights and biases.
  struct Part {
    std::size_t begin;
    std::size_t count;
    std::size_t inputs;  // (inputs + 1) * outputs == count
    std::size_t outputs;
  };
  std::vector<Part> parts() const;

  // Weights uniform in +-sqrt(6 / inputs) (He et al., 2015), biases zero.
  std::vector<float> initial_parameters(std::uint64_t seed) const;

  // Forward only.
  Evaluation evaluate(std::span<const float> parameters, const Samples& samples);

  // Forward and backward: `gradient` becomes the gradient of the mean loss over `samples`. The last
  // layer is announced first. Announced parts are not accessed any more.
  Evaluation differentiate(std::span<const float> parameters, const Samples& samples,
                           std::span<float> gradient, const GradientReady& ready);

 private:
  struct Layer {
    std::size_t inputs;
    std::size_t outputs;
    std::size_t weights_at;  // offset in the parameters
    std::size_t bias_at;
  };

  void forward(std::span<const float> parameters, const Samples& samples);
  Evaluation score(const Samples& samples) const;
  void softmax_minus_target(const Samples& samples);
  void layer_gradient(const Layer& layer, const float* inputs, std::size_t count,
                      std::span<float> gradient, const GradientReady& ready) const;
  void propagate(const Layer& layer, const float* weights, const std::vector<float>& activation,
                 std::size_t count);

  std::vector<Layer> layers_;
  std::size_t parameter_count_ = 0;
  std::size_t bucket_floats_;
  std::vector<std::vector<float>> activations_;  // per layer, after ReLU; the last one: the logits
  std::vector<float> delta_;                     // dLoss / d(layer's output before ReLU)
  std::vector<float> delta_next_;
};

// velocity = momentum * velocity + gradient; parameters -= rate * velocity.
struct Sgd {
  float rate;
  float momentum;
  std::vector<float> velocity;

  void step(std::span<const float> gradient, std::span<float> parameters);
};

// The demo's model, 64-1024-1024-10: 1.1 million parameters.
Model demo_model();

}  // namespace pith::demo
