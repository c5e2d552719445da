// Steps of one compressed allreduce over ranks in virtual time, with gradients drawn from a seed,
// and what every scheme must keep: the same result everywhere, and no gradient lost.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "collectives/algorithm.hpp"
#include "collectives/compressed.hpp"
#include "collectives/sparse/compressed_calls.hpp"
#include "compress/scheme.hpp"
#include "kernels/scalar.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

struct SparseCase {
  int ranks = 2;
  std::vector<std::size_t> counts = {1000};  // of the tensors of one call
  std::string spec = "topk:density=0.1";
  bool average = false;
  bool integers = false;  // gradients whose sums are exact in any order
  bool in_place = false;  // results take the place of the gradients
  std::uint64_t seed = 1;
  std::size_t chunk_bytes = std::size_t{64} << 10;
  double jitter_s = 0;          // messages come as much later at most
  std::vector<int> hosts = {};  // of each rank, for hierarchy=host; none: not known
  std::vector<int> order = {};  // of the ranks, which references may know; none: by rank
  DType type = DType::f32;      // of gradients, which are rounded to it, and results
};

// A call of one tensor.
inline SparseCase one_tensor(const std::string& spec, int ranks, std::size_t count) {
  SparseCase c;
  c.spec = spec;
  c.ranks = ranks;
  c.counts = {count};
  return c;
}

// As a gradient or a result of this type: what is too large becomes infinite.
inline float narrowed(float value, DType type) {
  if (type == DType::f32) return value;
  std::byte code[2];
  float back = 0;
  kernels::scalar::cast(code, type, reinterpret_cast<const std::byte*>(&value), DType::f32, 1);
  kernels::scalar::cast(reinterpret_cast<std::byte*>(&back), DType::f32, code, type, 1);
  return back;
}

// What the world of a case is made of.
inline SimConfig world_of(const SparseCase& c, SimConfig config = {}) {
  config.ranks = c.ranks;
  config.seed = c.seed;
  if (c.jitter_s > 0) config.jitter_s = c.jitter_s;
  return config;
}

// Tests see the scheme itself, unless they ask for the choice.
inline std::string never_dense(const std::string& spec) {
  const Spec parsed = *Spec::parse(spec);
  const bool is_open = parsed.sparse() && !parsed.scheme->averages_parameters;
  if (!is_open || spec.find("bypass=") != std::string::npos) return spec;
  return spec + (spec.find(':') == std::string::npos ? ":" : ",") + "bypass=never";
}

// A rank's compressors, gradients and results.
class SparseProgram {
 public:
  explicit SparseProgram(SparseCase c) : case_(std::move(c)) {
    tuning_.chunk_bytes = case_.chunk_bytes;
    for (int r = 0; r < case_.ranks; ++r) {
      Rank& rank = ranks_.emplace_back();
      for (const std::size_t count : case_.counts) {
        rank.compressors.push_back(std::move(*Compressor::create(never_dense(case_.spec))));
        rank.gradients.emplace_back(count);
        rank.results.emplace_back(count, -1.0f);
        rank.narrow.emplace_back(2 * count * size_of(case_.type));
      }
      rank.tensors.resize(case_.counts.size());
    }
  }

  const SparseCase& sparse_case() const { return case_; }
  Compressor& compressor(int rank, std::size_t tensor = 0) { return *at(rank).compressors[tensor]; }
  CompressedCalls& calls(int rank) { return at(rank).calls; }
  std::vector<float>& gradient(int rank, std::size_t tensor = 0) {
    return at(rank).gradients[tensor];
  }
  const std::vector<float>& result(int rank, std::size_t tensor = 0) {
    return case_.in_place ? at(rank).gradients[tensor] : at(rank).results[tensor];
  }
  std::vector<float> residual(int rank, std::size_t tensor = 0) {
    const Compressor& compressor = *at(rank).compressors[tensor];
    if (!compressor.shaped()) return std::vector<float>(case_.counts[tensor]);
    std::vector<float> residual(case_.counts[tensor]);
    compressor.copy_residual(reinterpret_cast<std::byte*>(residual.data()));
    return residual;
  }

  // What the next call adds to the residual: the gradient, or the velocity that it makes of it.
  std::vector<float> added(int rank, std::size_t tensor = 0) {
    std::vector<float> sum = gradient(rank, tensor);
    const Compressor& compressor = *at(rank).compressors[tensor];
    if (!compressor.velocity) return sum;
    std::vector<float> velocity(sum.size());
    compressor.velocity->memory().copy_to(reinterpret_cast<std::byte*>(velocity.data()));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (!std::isfinite(velocity[i])) velocity[i] = 0;
      sum[i] += compressor.velocity->rule().momentum * velocity[i];
    }
    return sum;
  }

  // What a call that fails must leave: old residual plus what it adds.
  std::vector<float> owed(int rank, std::size_t tensor = 0) {
    std::vector<float> sum = residual(rank, tensor);
    const std::vector<float> more = added(rank, tensor);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
    return sum;
  }

  // Of all tensors of rank 0, then of rank 1 and so on.
  std::vector<std::vector<float>> owed_by_all() {
    std::vector<std::vector<float>> all;
    for (int r = 0; r < case_.ranks; ++r) {
      for (std::size_t t = 0; t < case_.counts.size(); ++t) all.push_back(owed(r, t));
    }
    return all;
  }

  // Heavy tails, some exact zeros; magnitudes wander from step to step.
  void draw(std::uint64_t step);

  Task<Error> start(Call& call, int rank) {
    Rank& own = at(rank);
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      auto& out = case_.in_place ? own.gradients[t] : own.results[t];
      own.tensors[t] = {.compressor = own.compressors[t].get(),
                        .send = reinterpret_cast<const std::byte*>(own.gradients[t].data()),
                        .recv = reinterpret_cast<std::byte*>(out.data()),
                        .sparse = {},
                        .count = case_.counts[t],
                        .type = case_.type,
                        .average = case_.average};
      if (case_.type != DType::f32) narrow(own, t);
    }
    return allreduce_compressed(call, own.tensors, tuning_, own.calls);
  }

  // One call of all ranks in this world, whose results may differ; empty is good.
  std::string call_all(World& world) {
    for (const Error& error : run_ranks(world, [&](Call&call, int r) { return start(call, r); })) {
      if (error) return error.message();
    }
    for (Rank& rank : ranks_) widen(rank);
    return {};
  }

  // One step in this world; empty is good.
  std::string step(World& world) {
    std::string failure = call_all(world);
    return failure.empty() ? same_everywhere() : failure;
  }

  // So many steps, and the gradients of the next one; empty is good.
  std::string begin(World& world, int steps) {
    for (int s = 0; s < steps; ++s) {
      draw(static_cast<std::uint64_t>(s));
      std::string failure = step(world);
      if (!failure.empty()) return failure;
    }
    draw(static_cast<std::uint64_t>(steps));
    return {};
  }

  std::string same_everywhere() {
    for (int r = 1; r < case_.ranks; ++r) {
      for (std::size_t t = 0; t < case_.counts.size(); ++t) {
        const auto& first = result(0, t);
        if (first.empty() ||
            std::memcmp(first.data(), result(r, t).data(), first.size() * sizeof(float)) == 0) {
          continue;
        }
        return fmt::format("rank {}: the result of tensor {} is not that of rank 0", r, t);
      }
    }
    return {};
  }

 private:
  struct Rank {
    std::vector<std::unique_ptr<Compressor>> compressors;
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<float>> results;
    std::vector<std::vector<std::byte>> narrow;  // of 16 bits: gradients, and results behind them
    std::vector<CompressedTensor> tensors;
    CompressedCalls calls;
  };
  void narrow(Rank& rank, std::size_t t);
  void widen(Rank& rank);
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  SparseCase case_;
  Tuning tuning_;  // outlives the calls
  std::vector<Rank> ranks_;
};

// But for a last bit of float32, of the elements or of `sent`: what was rounded comes back in two
// parts.
inline bool about_equal(const std::vector<float>& a, const std::vector<float>& b, float sent = 0) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float largest = std::max({std::fabs(a[i]), std::fabs(b[i]), sent});
    if (std::fabs(a[i] - b[i]) > 1e-6f * largest) return false;
  }
  return true;
}
// The largest that a rank sends of such values. Draws without bias enlarge some of them: up to the
// mean of as many as are to be drawn.
inline float largest_sent(const Spec& spec, const std::vector<float>& values) {
  float largest = 0;
  double sum = 0;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
    sum += double(std::fabs(value));
  }
  if (spec.scheme->name != "wangni") return largest;
  const double mean = sum / double(elected_of(spec.density, values.size()));
  return std::max(largest, static_cast<float>(mean));
}
// How large what is sent may be beside small elements, where calls of these specs keep a rest, draw
// without bias, or sums of other ranks.
inline float most_sent(const SparseCase& c, const std::vector<float>& values) {
  const Spec spec = *Spec::parse(c.spec);
  const bool of_others = spec.scheme->electors == Electors::each_then_pairs;
  if (!keeps_rest(spec) && !of_others && spec.scheme->name != "wangni") return 0;
  return static_cast<float>(c.ranks) * largest_sent(spec, values);
}

inline std::string describe(const SparseCase& c) {
  std::string text = fmt::format("{} on {} ranks, seed {}, elements", c.spec, c.ranks, c.seed);
  for (const std::size_t count : c.counts) text += fmt::format(" {}", count);
  return text;
}

}  // namespace pith::test
