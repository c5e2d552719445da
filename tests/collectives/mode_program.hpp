// A compressed call in every form: gradients that the caller adds, results as pairs; and that
// nothing is lost or invented in any of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/collectives/host_layouts.hpp"

namespace pith::test {

struct Mode {
  bool in_place = false;  // gradients are added to the accumulators by the caller
  bool pairs = false;     // sparse results
  bool mixed = false;     // of ranks with odd numbers only
  std::size_t capacity = ~std::size_t{0};
};

// A SparseProgram's ranks called in another mode; results are those of the program where dense.
class ModeProgram {
 public:
  ModeProgram(SparseCase c, Mode mode) : program(c), mode_(mode), ranks_(program.sparse_case()) {}

  std::vector<Error> step(World& world) {
    return run_ranks(world, [this](Call& call, int r) { return start(call, r); });
  }

  // The result of a rank, dense.
  const std::vector<float>& result(int rank, std::size_t t = 0) { return at(rank, t).dense; }
  std::size_t pairs(int rank, std::size_t t = 0) { return at(rank, t).count; }

  // After a step: pairs in order become dense.
  std::string unpack() {
    for (int r = 0; r < program.sparse_case().ranks; ++r) {
      for (std::size_t t = 0; t < program.sparse_case().counts.size(); ++t) {
        Output& out = at(r, t);
        if (!has_pairs(r)) continue;
        std::fill(out.dense.begin(), out.dense.end(), 0.0f);
        for (std::size_t i = 0; i < std::min(out.count, out.indices.size()); ++i) {
          if (i > 0 && out.indices[i] <= out.indices[i - 1]) return "pairs out of order";
          out.dense[out.indices[i]] = out.values[i];
        }
      }
    }
    return {};
  }

  SparseProgram program;

 private:
  struct Output {
    std::vector<float> dense, values;
    std::vector<std::uint64_t> indices;
    std::size_t count = 0;
  };
  struct Outputs {
    explicit Outputs(const SparseCase& c) {
      for (int r = 0; r < c.ranks; ++r) {
        auto& own = of.emplace_back();
        tensors.emplace_back(c.counts.size());
        for (const std::size_t count : c.counts) own.push_back({std::vector<float>(count), {}, {}});
      }
    }
    std::vector<std::vector<Output>> of;
    std::vector<std::vector<CompressedTensor>> tensors;
  };
  bool has_pairs(int rank) const { return mode_.pairs && (!mode_.mixed || rank % 2 == 1); }
  Output& at(int rank, std::size_t t) { return ranks_.of[static_cast<std::size_t>(rank)][t]; }

  Task<Error> start(Call& call, int rank) {
    const SparseCase& c = program.sparse_case();
    auto& tensors = ranks_.tensors[static_cast<std::size_t>(rank)];
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      Compressor& compressor = program.compressor(rank, t);
      Output& out = at(rank, t);
      out.indices.resize(std::min(mode_.capacity, c.counts[t]));
      out.values.resize(out.indices.size());
      CompressedTensor& tensor = tensors[t];
      tensor.compressor = &compressor;
      tensor.count = c.counts[t];
      tensor.recv = reinterpret_cast<std::byte*>(out.dense.data());
      tensor.send = reinterpret_cast<const std::byte*>(program.gradient(rank, t).data());
      if (has_pairs(rank)) {
        tensor.sparse = {out.indices.data(), reinterpret_cast<std::byte*>(out.values.data()),
                         out.indices.size(), &out.count};
      }
      if (!mode_.in_place) continue;
      compressor.shape(c.counts[t], DType::f32);
      HostCompute host;
      float* accumulator = compressor.lend_accumulator(host);
      for (std::size_t i = 0; i < c.counts[t]; ++i) accumulator[i] += program.gradient(rank, t)[i];
      tensor.send = reinterpret_cast<const std::byte*>(accumulator);
    }
    Tuning tuning;
    tuning.chunk_bytes = c.chunk_bytes;
    return allreduce_compressed(call, tensors, tuning, program.calls(rank));
  }

  Mode mode_;
  Outputs ranks_;
};

// Several steps: gradients given = results delivered + residuals, and the same results everywhere.
// `tolerance` is relative to the largest sum, of what is given or left.
inline std::string conserve(const SparseCase& c, Mode mode, int steps, double tolerance) {
  ModeProgram modes(c, mode);
  SparseProgram& program = modes.program;
  const auto world = world_with_hosts(c);
  std::vector<std::vector<double>> given;
  std::vector<std::vector<double>> delivered;
  for (const std::size_t count : c.counts) {
    given.emplace_back(count);
    delivered.emplace_back(count);
  }
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      for (int r = 0; r < c.ranks; ++r) {
        const std::vector<float> added = program.added(r, t);
        for (std::size_t i = 0; i < added.size(); ++i) given[t][i] += double(added[i]);
      }
    }
    for (const Error& error : modes.step(*world)) {
      if (error) return error.message();
    }
    if (std::string failure = modes.unpack(); !failure.empty()) return failure;
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      for (int r = 1; r < c.ranks; ++r) {
        if (modes.result(r, t) != modes.result(0, t)) return fmt::format("rank {} differs", r);
      }
      double most = 0.25;  // of one gradient
      std::vector<double> left(c.counts[t]);
      for (std::size_t i = 0; i < c.counts[t]; ++i) {
        delivered[t][i] += double(modes.result(0, t)[i]);
        most = std::max(most, std::fabs(given[t][i]));
      }
      for (int r = 0; r < c.ranks; ++r) {
        const std::vector<float> residual = program.residual(r, t);
        for (std::size_t i = 0; i < left.size(); ++i) {
          left[i] += double(residual[i]);
          most = std::max(most, std::fabs(left[i]));
        }
      }
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (std::fabs(given[t][i] - delivered[t][i] - left[i]) > tolerance * most) {
          return fmt::format("step {}, tensor {}, element {}: {} given, {} delivered, {} left",
                             step, t, i, given[t][i], delivered[t][i], left[i]);
        }
      }
    }
  }
  return world->leaks();
}

}  // namespace pith::test
