// Top-k with error feedback and the usual exchange: each rank sends the k largest elements of
// gradient plus residual as plain pairs, a 32-bit index and a float32, by MPI_Allgather, and adds
// all pairs to zeros one by one. The selection is Pith's, so that only the exchange differs from
// Pith's top-k. Run it under mpirun.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "frame/gradients.hpp"
#include "peers/mpi_world.hpp"
#include "perf/compress/pith_step.hpp"

namespace {

using pith_bench::MpiWorld;
using pith_bench::Row;
using pith_bench::seconds_now;

struct Options {
  pith_bench::Settings settings;
  double density = 0.01;
  std::string data_folder;
  std::size_t calls = 5;
  std::size_t warmup_calls = 2;
};

class PlainTopk {
 public:
  PlainTopk(std::size_t count, double density, const MpiWorld& world)
      : step_(count, density),
        k_(pith::elected_of(density, count)),
        rank_(static_cast<std::size_t>(world.rank())),
        ranks_(static_cast<std::size_t>(world.ranks())),
        pairs_(2 * k_ * ranks_),
        result_(count) {
    if (2 * k_ > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      throw std::runtime_error(fmt::format("{} pairs are too many for MPI", k_));
    }
  }

  void all_reduce(const float* gradient) {
    select(gradient);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, pairs_.data(), static_cast<int>(2 * k_),
                  MPI_UINT32_T, MPI_COMM_WORLD);
    std::fill(result_.begin(), result_.end(), 0.0F);
    for (std::size_t rank = 0; rank < ranks_; ++rank) add(rank, result_, [](float x) { return x; });
  }

  // After a call: compares its result with MPI_Allreduce of vectors that are zero where nothing was
  // selected. Throws if they differ.
  void check() const {
    std::vector<float> expected(result_.size());
    std::vector<float> magnitudes(result_.size());
    add(rank_, expected, [](float x) { return x; });
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      add(rank, magnitudes, [](float x) { return std::fabs(x); });
    }
    MPI_Allreduce(MPI_IN_PLACE, expected.data(), static_cast<int>(expected.size()), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
    const float rounding = 0x1p-23F * static_cast<float>(ranks_);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::fabs(result_[i] - expected[i]) <= rounding * magnitudes[i]) continue;
      throw std::runtime_error(fmt::format("wrong result: element {} of {} is {}, expected {}", i,
                                           expected.size(), result_[i], expected[i]));
    }
  }

 private:
  // Per rank: all indices, then all values.
  std::uint32_t* pairs_of(std::size_t rank) { return pairs_.data() + 2 * k_ * rank; }
  const std::uint32_t* pairs_of(std::size_t rank) const { return pairs_.data() + 2 * k_ * rank; }

  void select(const float* gradient) {
    pith_bench::Step step = {};
    step.gradient = gradient;
    step.count = result_.size();
    step.k = k_;
    step_.run(step);
    const pith::SparseList list = step_.pairs();
    if (list.count != k_) {
      throw std::runtime_error(fmt::format("{} pairs selected, expected {}", list.count, k_));
    }
    std::memcpy(pairs_of(rank_), list.indices, k_ * sizeof(std::uint32_t));
    std::memcpy(pairs_of(rank_) + k_, list.values, k_ * sizeof(float));
  }

  template <class Map>
  void add(std::size_t rank, std::vector<float>& to, Map map) const {
    const std::uint32_t* const indices = pairs_of(rank);
    for (std::size_t i = 0; i < k_; ++i) {
      float value;
      std::memcpy(&value, indices + k_ + i, sizeof value);
      to[indices[i]] += map(value);
    }
  }

  pith_bench::PithStep step_;
  std::size_t k_;
  std::size_t rank_;
  std::size_t ranks_;
  std::vector<std::uint32_t> pairs_;
  std::vector<float> result_;
};

// The slowest rank's time of each call, each with another gradient.
Row measure(const Options& options, const pith_perf::Gradients& source, MpiWorld& world,
            std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  std::vector<float> gradient(count + pith_perf::Gradients::slack());
  source.fill(gradient, world.rank());
  PlainTopk topk(count, options.density, world);
  std::vector<double> times_us;
  const std::size_t warmup = options.warmup_calls;
  for (std::size_t call = 0; call < warmup + options.calls; ++call) {
    const float* const own = gradient.data() + pith_perf::Gradients::shift_of_call(call);
    world.barrier();
    const double start = seconds_now();
    topk.all_reduce(own);
    const double slowest = world.max(seconds_now() - start);
    if (call == 0) topk.check();
    if (call >= warmup) times_us.push_back(slowest * 1e6);
  }
  std::sort(times_us.begin(), times_us.end());
  Row row;
  row.bytes = bytes;
  row.iters = 1;
  row.batches = static_cast<int>(options.calls);
  row.us = times_us[times_us.size() / 2];
  row.us_min = times_us.front();
  row.us_max = times_us.back();
  return row;
}

int run(const Options& options) {
  MpiWorld world = pith_bench::mpi_world(options.settings);
  const pith_perf::Gradients source(options.data_folder);
  std::vector<Row> rows;
  for (const std::size_t bytes : pith_bench::sizes_bytes(options.settings)) {
    rows.push_back(measure(options, source, world, bytes));
  }
  if (world.rank() != 0) return 0;
  pith_bench::report(
      options.settings,
      {"openmpi-topk", pith_bench::mpi_library(), pith_bench::mpi_links(),
       fmt::format("top-k of density {:g} as plain pairs by allgather, {} gradients",
                   options.density, options.data_folder.empty() ? "made-up" : "real")},
      rows);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("times top-k with plain pairs over MPI_Allgather; run it under mpirun");
  Options options;
  options.settings.sizes = {std::size_t{64} << 20};
  app.add_option("--ranks", options.settings.ranks, "number of ranks")
      ->check(CLI::Range(1, pith_bench::ranks_max));
  app.add_option("--sizes", options.settings.sizes, "sizes of the dense vector in bytes")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--density", options.density, "share of the elements that each rank selects")
      ->check(CLI::Range(1e-9, 1.0));
  app.add_option("--data", options.data_folder,
                 "folder of raw *.f32 and *.f16 gradients; made up without");
  app.add_option("--calls", options.calls, "timed calls a size")->check(CLI::Range(1, 10'000));
  app.add_option("--warmup", options.warmup_calls, "calls before; the first of all is checked")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--json", options.settings.json_path, "also write the results to this file");
  app.add_flag("--pin,!--no-pin", options.settings.pin, "bind rank i to core i % cores (default)");
  return pith_bench::mpi_main(app, argc, argv, [&] { return run(options); });
}
