#include "tools/simulated/compressed.hpp"

#include <cmath>
#include <memory>

#include "collectives/compressed.hpp"
#include "collectives/sparse/compressed_calls.hpp"
#include "compress/scheme.hpp"
#include "core/mix.hpp"
#include "world/world.hpp"

namespace pith_simulated {

using namespace pith;

namespace {

constexpr int settling_steps = 5;  // until selections foresee their threshold
constexpr int measured_steps = 3;

// What the ranks keep from step to step.
class Ranks {
 public:
  Ranks(const CompressedCall& call, int ranks) : call_(call) {
    Spec spec = call.spec;
    spec.may_bypass = false;
    for (int rank = 0; rank < ranks; ++rank) {
      compressors_.push_back(std::make_unique<Compressor>(spec));
      vectors_.emplace_back(call.count);
    }
    tensors_.resize(vectors_.size());
    calls_.resize(vectors_.size());
  }

  // Results take the place of the gradients.
  Error step(World& world) {
    if (!call_.hosts.empty()) world.set_hosts(call_.hosts);
    ++steps_;
    for (std::size_t rank = 0; rank < vectors_.size(); ++rank) draw(rank);
    const auto start = [&](Call& its, int rank) {
      const auto place = static_cast<std::size_t>(rank);
      return allreduce_compressed(its, tensors_of(place), call_.tuning, calls_[place]);
    };
    for (const Error& error : run_ranks(world, start)) {
      if (error) return error;
    }
    return {};
  }

 private:
  std::span<CompressedTensor> tensors_of(std::size_t rank) {
    CompressedTensor& tensor = tensors_[rank];
    std::vector<float>& vector = vectors_[rank];
    tensor.compressor = compressors_[rank].get();
    tensor.send = reinterpret_cast<const std::byte*>(vector.data());
    tensor.recv = reinterpret_cast<std::byte*>(vector.data());
    tensor.count = vector.size();
    return {&tensor, 1};
  }
  // Between -0.25 and 0.25, most of them near zero.
  void draw(std::size_t rank) {
    const std::uint64_t stream = mix(mix(call_.seed, steps_), rank);
    std::vector<float>& vector = vectors_[rank];
    for (std::size_t i = 0; i < vector.size(); ++i) {
      const std::uint64_t bits = mix(mix(stream, i), call_.seed);
      const float u = static_cast<float>(bits >> 40) / float(1 << 24) - 0.5f;
      vector[i] = u * std::fabs(u);
    }
  }

  const CompressedCall& call_;
  std::vector<std::unique_ptr<Compressor>> compressors_;
  std::vector<std::vector<float>> vectors_;
  std::vector<CompressedTensor> tensors_;
  std::vector<CompressedCalls> calls_;
  std::uint64_t steps_ = 0;
};

}  // namespace

// Per element a vector, its accumulator, and a copy of both at times; per pair of a list an index
// and a value, in a message and decoded.
double memory_of(const CompressedCall& call, int ranks) {
  constexpr double per_element = 16;
  constexpr double per_pair = 24;
  const double p = ranks;
  const double n = static_cast<double>(call.count);
  const bool all_lists = gathers_lists(call.spec);
  const double pairs = call.spec.sparse() ? n * call.spec.density * (all_lists ? p : 1) : n;
  return p * (per_element * n + per_pair * pairs);
}

// Each measured step has a world of its own, as changes of bandwidth count from a call's start.
Expected<double> seconds_of(const SimConfig& config, const CompressedCall& call) {
  Ranks ranks(call, config.ranks);
  World settling(config);
  for (int step = 0; step < settling_steps; ++step) {
    if (Error error = ranks.step(settling)) return error;
  }
  double seconds = 0;
  for (int step = 0; step < measured_steps; ++step) {
    SimConfig own = config;
    own.seed = config.seed + static_cast<std::uint64_t>(step);
    World world(own);
    if (Error error = ranks.step(world)) return error;
    seconds += world.elapsed_s();
  }
  return seconds / measured_steps;
}

}  // namespace pith_simulated
