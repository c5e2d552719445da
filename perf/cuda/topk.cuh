// A step of exact top-k with error feedback, and CUB's algorithms composed to the same result.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include <thrust/iterator/counting_iterator.h>
#include <cub/cub.cuh>

#include "perf/cuda/measure.cuh"

namespace pith::cuda {

#define PITH_CUDA_DEFINE(name, ...) PITH_CUDA_GLOBAL(pith_##name, __VA_ARGS__)
PITH_CUDA_SELECT_KERNELS(PITH_CUDA_DEFINE)
#undef PITH_CUDA_DEFINE

}  // namespace pith::cuda

namespace pith::cuda::perf {

// Everything that a step of exact top-k reads and writes.
struct Step {
  Step(std::size_t n, std::size_t most)
      : accumulator(n), pristine(n), gradient(n), indices(most), values(most), work(64 << 20) {
    fill(pristine.data, n, 3);
    fill(gradient.data, n, 4);
    CHECK(cudaMallocHost(&pass, sizeof *pass));
    CHECK(cudaMallocHost(&smallest, sizeof *smallest));
    CHECK(cudaMallocHost(&squares, sizeof *squares));
  }
  void restore() const {
    CHECK(cudaMemcpyAsync(accumulator.data, pristine.data, accumulator.count * sizeof(float),
                          cudaMemcpyDeviceToDevice));
  }
  Device<float> accumulator, pristine, gradient;
  Device<std::uint32_t> indices;
  Device<float> values;
  Device<std::byte> work;
  PassTotals* pass = nullptr;
  float* smallest = nullptr;
  double* squares = nullptr;
};

using Pass = Select<float, true>;

inline SelectArgs select_args(const Step& step, float threshold) {
  SelectArgs args{};
  args.accumulator = step.accumulator.data;
  args.gradient = step.gradient.bytes();
  args.count = step.accumulator.count;
  args.result = step.pass;
  args.tiles = (args.count + Pass::tile_elements - 1) / Pass::tile_elements;
  args.state = reinterpret_cast<TileState*>(step.work.data);
  args.parts = reinterpret_cast<double*>(step.work.data + (16 << 20));
  args.capacity = step.indices.count;
  args.indices = step.indices.data;
  args.values = step.values.data;
  args.cut = bits_as<std::uint32_t>(threshold);
  return args;
}

inline void run_select(const Step& step, float threshold) {
  const SelectArgs args = select_args(step, threshold);
  CHECK(cudaMemsetAsync(args.state, 0, tile_state_bytes(args.tiles)));
  pith_select_f32<<<static_cast<unsigned>(args.tiles), Pass::threads>>>(args);
}

// The host already knows the list's length, as in use from the step before.
inline void run_refine(const Step& step, std::size_t listed, std::size_t k) {
  auto* const state = reinterpret_cast<TileState*>(step.work.data);
  auto* const kth = reinterpret_cast<KthState*>(step.work.data + (8 << 20));
  const std::size_t tiles = (listed + KeepLargest::tile_elements - 1) / KeepLargest::tile_elements;
  CHECK(cudaMemsetAsync(state, 0, tile_state_bytes(tiles)));
  CHECK(cudaMemsetAsync(kth, 0, sizeof *kth));
  const KthArgs find{step.values.data, listed, k, kth};
  const auto blocks =
      static_cast<unsigned>(std::min<std::size_t>((listed + 4095) / 4096, most_blocks));
  pith_kth_high<<<blocks, 256>>>(find);
  pith_kth_middle<<<blocks, 256>>>(find);
  pith_kth_low<<<blocks, 256>>>(find);
  const KeepArgs keep{step.indices.data,
                      step.values.data,
                      listed,
                      k,
                      step.accumulator.data,
                      step.smallest,
                      step.squares,
                      kth,
                      state,
                      reinterpret_cast<double*>(step.work.data + (16 << 20)),
                      tiles};
  pith_keep_largest<<<static_cast<unsigned>(tiles), 256>>>(keep);
}

struct Passes {
  const float* values;
  float threshold;
  __device__ bool operator()(std::uint32_t i) const { return fabsf(values[i]) >= threshold; }
};

__global__ void add_all(float* accumulator, const float* gradient, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count / 4) {
    float4 a = reinterpret_cast<float4*>(accumulator)[i];
    const float4 g = reinterpret_cast<const float4*>(gradient)[i];
    a.x += g.x, a.y += g.y, a.z += g.z, a.w += g.w;
    reinterpret_cast<float4*>(accumulator)[i] = a;
  }
}
__global__ void take_keys(const float* accumulator, const std::uint32_t* indices,
                          std::uint32_t* keys, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) keys[i] = magnitude_of(accumulator[indices[i]]);
}
__global__ void take_and_clear(float* accumulator, const std::uint32_t* indices, float* values,
                               std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  values[i] = accumulator[indices[i]];
  accumulator[indices[i]] = 0;
}

__global__ void take_all_keys(const float* accumulator, std::uint32_t* keys, std::uint32_t* indices,
                              std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  keys[i] = magnitude_of(accumulator[i]);
  indices[i] = static_cast<std::uint32_t>(i);
}

// Adds during the selection: CUB evaluates the predicate once per element.
struct AddsAndPasses {
  float* accumulator;
  const float* gradient;
  float threshold;
  __device__ bool operator()(std::uint32_t i) const {
    const float sum = accumulator[i] + gradient[i];
    accumulator[i] = sum;
    return fabsf(sum) >= threshold;
  }
};

inline unsigned blocks_of(std::size_t threads) {
  return static_cast<unsigned>((threads + 255) / 256);
}

// CUB's algorithms, composed to the same result in the ways known to us. The first two get the
// certified threshold that ours has; the third needs none, but memory for four vectors.
struct CubStep {
  CubStep(const Step& s, std::size_t most)
      : step(s),
        found(most),
        sorted(most),
        keys(most),
        sorted_keys(most),
        count(1),
        work((std::size_t{64} << 20) + 2 * s.accumulator.count) {}
  // Add; select indices; sort those by magnitude; take k.
  void select(float threshold, std::size_t listed, std::size_t k) {
    const std::size_t n = step.accumulator.count;
    add_all<<<blocks_of(n / 4), 256>>>(step.accumulator.data, step.gradient.data, n);
    compact(Passes{step.accumulator.data, threshold});
    sort_and_take(listed, k);
  }
  // The same with the addition inside the selection: one pass less.
  void select_adding(float threshold, std::size_t listed, std::size_t k) {
    compact(AddsAndPasses{step.accumulator.data, step.gradient.data, threshold});
    sort_and_take(listed, k);
  }
  // Add; sort everything by magnitude; take k. Precondition: `most` is the whole vector.
  void sort_all(std::size_t k) {
    const std::size_t n = step.accumulator.count;
    add_all<<<blocks_of(n / 4), 256>>>(step.accumulator.data, step.gradient.data, n);
    take_all_keys<<<blocks_of(n), 256>>>(step.accumulator.data, keys.data, found.data, n);
    sort(n);
    take_and_clear<<<blocks_of(k), 256>>>(step.accumulator.data, sorted.data, step.values.data, k);
  }
  template <class Test>
  void compact(Test test) {
    std::size_t bytes = work.count;
    CHECK(cub::DeviceSelect::If(work.data, bytes, thrust::counting_iterator<std::uint32_t>(0),
                                found.data, count.data,
                                static_cast<std::int64_t>(step.accumulator.count), test));
  }
  void sort(std::size_t listed) {
    std::size_t bytes = work.count;
    CHECK(cub::DeviceRadixSort::SortPairsDescending(work.data, bytes, keys.data, sorted_keys.data,
                                                    found.data, sorted.data,
                                                    static_cast<std::int64_t>(listed), 0, 31));
  }
  void sort_and_take(std::size_t listed, std::size_t k) {
    take_keys<<<blocks_of(listed), 256>>>(step.accumulator.data, found.data, keys.data, listed);
    sort(listed);
    take_and_clear<<<blocks_of(k), 256>>>(step.accumulator.data, sorted.data, step.values.data, k);
  }
  const Step& step;
  Device<std::uint32_t> found, sorted, keys, sorted_keys;
  Device<std::int64_t> count;
  Device<std::byte> work;
};

// Both must produce the same list, and the same residual bit for bit.
inline bool same_results(const Step& step, const CubStep& cub, float threshold, std::size_t k,
                         const std::function<void()>& run_cub) {
  step.restore();
  run_select(step, threshold);
  CHECK(cudaDeviceSynchronize());
  run_refine(step, step.pass->selected, k);
  const std::vector<std::uint32_t> ours = step.indices.host(k);
  const std::vector<float> left = step.accumulator.host(step.accumulator.count);
  step.restore();
  run_cub();
  std::vector<std::uint32_t> theirs = cub.sorted.host(k);
  std::sort(theirs.begin(), theirs.end());
  const bool rising = std::is_sorted(ours.begin(), ours.end());
  const std::vector<float> left_by_cub = step.accumulator.host(step.accumulator.count);
  return rising && ours == theirs &&
         std::memcmp(left.data(), left_by_cub.data(), left.size() * sizeof(float)) == 0;
}

// The threshold that a little more than k elements pass, found once by bisection.
inline float threshold_for(const Step& step, std::size_t k) {
  float low = 0, high = 64;
  for (int round = 0; round < 40; ++round) {
    const float middle = (low + high) / 2;
    step.restore();
    run_select(step, middle);
    CHECK(cudaDeviceSynchronize());
    const std::uint64_t selected = step.pass->selected;
    if (selected >= k && selected <= k + k / 20) return middle;
    (selected > k ? low : high) = middle;
  }
  return low;
}

inline bool measure_topk(std::size_t n, double density) {
  const auto k = static_cast<std::size_t>(static_cast<double>(n) * density);
  Step step(n, k * 4);
  CubStep cub(step, n);
  const float threshold = threshold_for(step, k);
  step.restore();
  run_select(step, threshold);
  CHECK(cudaDeviceSynchronize());
  const std::size_t listed = step.pass->selected;
  const double bytes = 12.0 * static_cast<double>(n);
  const auto restore = [&] { step.restore(); };
  std::vector<Contender> contenders = {
      {"fused pass alone", restore, [&] { run_select(step, threshold); }, bytes},
      {"exact top-k step", restore,
       [&] {
         run_select(step, threshold);
         run_refine(step, listed, k);
       },
       bytes},
      {"CUB: add, select, sort, take", restore, [&] { cub.select(threshold, listed, k); }, bytes},
      {"CUB: select adding, sort, take", restore, [&] { cub.select_adding(threshold, listed, k); },
       bytes},
      {"CUB: add, sort all, take", restore, [&] { cub.sort_all(k); }, bytes}};
  char group[64];
  std::snprintf(group, sizeof group, "top-k %.2g%% of %zuM", 100 * density, n / 1000000);
  measure(group, contenders);
  constexpr std::size_t own = 1, first_cub = 2;
  bool same = true;
  double best = contenders[first_cub].median();
  for (std::size_t i = first_cub; i < contenders.size(); ++i) {
    best = std::min<double>(best, contenders[i].median());
    const bool equal = same_results(step, cub, threshold, k, contenders[i].run);
    std::printf("%-22s results %s %s\n", group, equal ? "equal those of" : "DIFFER FROM",
                contenders[i].name.c_str());
    same = same && equal;
  }
  std::printf("%-22s best of CUB / ours: %.2f\n", group, best / contenders[own].median());
  return same;
}

}  // namespace pith::cuda::perf
