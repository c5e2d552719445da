// Kernels on one GPU, compared with the GPU's own copies and with CUB's algorithms composed to the
// same result. Prints a table, and JSON with --json FILE. Built by nvcc alone, see
// tools/gpu/run.sh.
//
// Times are medians over rounds, measured by events; contenders of a case run interleaved. "of
// copy" counts the bytes that the work must move and divides by the rate of a device copy in the
// same run: for n vectors into one, n + 1 each, even if more passes move more.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <thrust/iterator/counting_iterator.h>
#include <cub/cub.cuh>

#include "cuda/kernels/list.hpp"

namespace pith::cuda {

#define PITH_CUDA_DEFINE(name, ...) PITH_CUDA_GLOBAL(pith_##name, __VA_ARGS__)
PITH_CUDA_DEFINE(reduce_f32_sum, Reduce<float, Op::sum>)
PITH_CUDA_DEFINE(reduce_bf16_sum, Reduce<Bfloat, Op::sum>)
PITH_CUDA_DEFINE(reduce_f16_sum, Reduce<Half, Op::sum>)
PITH_CUDA_DEFINE(cast_f32_bf16, Cast<Bfloat, float>)
PITH_CUDA_DEFINE(copy, Copy)
PITH_CUDA_SELECT_KERNELS(PITH_CUDA_DEFINE)
PITH_CUDA_DEFINE(scatter_f32, Scatter<float>)
PITH_CUDA_DEFINE(encode_indices, EncodeIndices)

}  // namespace pith::cuda

using namespace pith;
using namespace pith::cuda;

namespace {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "cuda_perf: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

template <class T>
struct Device {
  explicit Device(std::size_t n) : count(n) { CHECK(cudaMalloc(&data, n * sizeof(T))); }
  ~Device() { cudaFree(data); }
  Device(const Device&) = delete;
  std::byte* bytes() const { return reinterpret_cast<std::byte*>(data); }
  std::vector<T> host(std::size_t n) const {
    std::vector<T> out(n);
    CHECK(cudaMemcpy(out.data(), data, n * sizeof(T), cudaMemcpyDefault));
    return out;
  }
  T* data = nullptr;
  std::size_t count;
};

struct Contender {
  std::string name;
  std::function<void()> prepare;  // not timed
  std::function<void()> run;
  double bytes;  // that the work must move
  std::vector<float> ms = {};
  double median() const {
    std::vector<float> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

struct Row {
  std::string group, name;
  double us, gigabytes, of_copy;
};
std::vector<Row> rows;
double copy_rate = 0;  // bytes per millisecond
int rounds = 20;
unsigned most_blocks = 0;

void measure(const char* group, std::vector<Contender>& contenders) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int round = -2; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      if (contender.prepare) contender.prepare();
      CHECK(cudaEventRecord(begin));
      contender.run();
      CHECK(cudaEventRecord(end));
      CHECK(cudaGetLastError());
      CHECK(cudaEventSynchronize(end));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (round >= 0) contender.ms.push_back(ms);
    }
  }
  for (const Contender& contender : contenders) {
    const double rate = contender.bytes / contender.median();
    copy_rate = std::max(copy_rate, std::string(group) == "copy" ? rate : 0.0);
    rows.push_back({group, contender.name, contender.median() * 1e3, rate / 1e6, rate / copy_rate});
    const Row& row = rows.back();
    std::printf("%-22s %-34s %12.1f us %9.1f GB/s %7.3f of copy\n", group, row.name.c_str(), row.us,
                row.gigabytes, row.of_copy);
  }
}

unsigned walk_blocks(std::size_t bytes) {
  const std::size_t blocks = (bytes + step_bytes - 1) / step_bytes;
  return static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, most_blocks));
}

__global__ void fill_normal(float* out, std::size_t count, std::uint32_t seed) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  const float u = (static_cast<float>(x >> 40) + 0.5f) / 16777216.0f;
  const float v = static_cast<float>(x & 0xffffff) / 16777216.0f;
  out[i] = sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

void fill(float* out, std::size_t count, std::uint32_t seed) {
  fill_normal<<<static_cast<unsigned>((count + 255) / 256), 256>>>(out, count, seed);
  CHECK(cudaGetLastError());
}

ReduceArgs reduce_args(std::initializer_list<const std::byte*> in, std::byte* out,
                       std::size_t count) {
  ReduceArgs args{count, static_cast<std::uint32_t>(in.size()), 1, 0, {}, {out}};
  std::copy(in.begin(), in.end(), args.in);
  return args;
}

MapArgs copy_args(std::byte* out, const std::byte* in, std::size_t bytes) {
  return {out, in, bytes, 0, nullptr, 0};
}

void measure_dense(std::size_t bytes) {
  Device<std::byte> a(bytes), b(bytes), out(bytes);
  fill(reinterpret_cast<float*>(a.data), bytes / 4, 1);
  fill(reinterpret_cast<float*>(b.data), bytes / 4, 2);
  const double two = 2.0 * static_cast<double>(bytes), three = 1.5 * two;
  const auto args = [&](std::size_t element) {
    return reduce_args({a.data, b.data}, out.data, bytes / element);
  };
  std::vector<Contender> copies = {
      {"cudaMemcpyAsync",
       {},
       [&] { CHECK(cudaMemcpyAsync(out.data, a.data, bytes, cudaMemcpyDeviceToDevice)); },
       two},
      {"copy kernel",
       {},
       [&] { pith_copy<<<walk_blocks(bytes), 256>>>(copy_args(out.data, a.data, bytes)); },
       two},
      {"copy kernel, 4 bytes apart",
       {},
       [&] { pith_copy<<<walk_blocks(bytes), 256>>>(copy_args(out.data, a.data + 4, bytes - 4)); },
       two}};
  measure("copy", copies);
  std::vector<Contender> reduces = {
      {"float sum", {}, [&] { pith_reduce_f32_sum<<<walk_blocks(bytes), 256>>>(args(4)); }, three},
      {"bfloat16 sum",
       {},
       [&] { pith_reduce_bf16_sum<<<walk_blocks(bytes), 256>>>(args(2)); },
       three},
      {"half sum", {}, [&] { pith_reduce_f16_sum<<<walk_blocks(bytes), 256>>>(args(2)); }, three},
      {"cast float32 to bfloat16",
       {},
       [&] {
         pith_cast_f32_bf16<<<walk_blocks(bytes), 256>>>(CastArgs{out.data, a.data, bytes / 4});
       },
       0.75 * two}};
  measure("reduce", reduces);
}

// All ranks' vectors into one, at once and two by two: (n + 1) / (3n - 3) of the bytes.
void measure_many(std::size_t bytes, unsigned inputs) {
  std::vector<std::unique_ptr<Device<std::byte>>> in;
  Device<std::byte> out(bytes);
  ReduceArgs all = reduce_args({}, out.data, bytes / 4);
  for (; all.inputs < inputs; ++all.inputs) {
    in.push_back(std::make_unique<Device<std::byte>>(bytes));
    fill(reinterpret_cast<float*>(in.back()->data), bytes / 4, all.inputs);
    all.in[all.inputs] = in.back()->data;
  }
  ReduceArgs halves = all;
  halves.count = bytes / 2;
  const auto in_pairs = [&] {
    const std::byte* so_far = all.in[0];
    for (unsigned k = 1; k < inputs; ++k, so_far = out.data) {
      pith_reduce_f32_sum<<<walk_blocks(bytes), 256>>>(
          reduce_args({so_far, all.in[k]}, out.data, all.count));
    }
  };
  const auto floats = [&] { pith_reduce_f32_sum<<<walk_blocks(bytes), 256>>>(all); };
  const auto bfloats = [&] { pith_reduce_bf16_sum<<<walk_blocks(bytes), 256>>>(halves); };
  const double least = (inputs + 1.0) * static_cast<double>(bytes);
  std::vector<Contender> sums = {{"float sum at once", {}, floats, least},
                                 {"float sum two by two", {}, in_pairs, least},
                                 {"bfloat16 sum at once", {}, bfloats, least}};
  char group[32];
  std::snprintf(group, sizeof group, "%u vectors", inputs);
  measure(group, sums);
}

void measure_small() {
  Device<std::byte> a(65536), b(65536), out(65536);
  const ReduceArgs small = reduce_args({a.data, b.data}, out.data, 2);
  const ReduceArgs many =
      reduce_args({a.data, b.data, a.data, b.data, a.data, b.data, a.data, b.data}, out.data, 2);
  const ReduceArgs more = reduce_args({a.data, b.data}, out.data, 16384);
  std::vector<Contender> launches = {
      {"float sum of 8 B", {}, [&] { pith_reduce_f32_sum<<<1, 256>>>(small); }, 24},
      {"float sum of 8 vectors of 8 B", {}, [&] { pith_reduce_f32_sum<<<1, 256>>>(many); }, 72},
      {"float sum of 64 KiB",
       {},
       [&] { pith_reduce_f32_sum<<<walk_blocks(65536), 256>>>(more); },
       3 * 65536.0}};
  measure("one launch", launches);
}

// Between device and pinned memory: at once, in the chunks of calls staged through the host, and by
// the blocks of a worker.
void measure_staging(const char* group, std::size_t bytes, bool to_host) {
  constexpr std::size_t chunk = std::size_t{512} << 10;
  Device<std::byte> device(bytes);
  std::byte* host = nullptr;
  CHECK(cudaMallocHost(&host, bytes));
  std::byte* const out = to_host ? host : device.data;
  const std::byte* const in = to_host ? device.data : host;
  const auto in_chunks = [&](const auto& copy) {
    for (std::size_t at = 0; at < bytes; at += chunk) copy(at, std::min(chunk, bytes - at));
  };
  const auto by_driver = [&](std::size_t at, std::size_t length) {
    CHECK(cudaMemcpyAsync(out + at, in + at, length, cudaMemcpyDefault));
  };
  const auto by_blocks = [&](unsigned blocks) {
    return [=] {
      in_chunks([&](std::size_t at, std::size_t length) {
        pith_copy<<<std::min(walk_blocks(length), blocks), 256>>>(
            copy_args(out + at, in + at, length));
      });
    };
  };
  const auto all = static_cast<double>(bytes);
  std::vector<Contender> copies = {{"pinned copy", {}, [&] { by_driver(0, bytes); }, all},
                                   {"chunks by the driver", {}, [&] { in_chunks(by_driver); }, all},
                                   {"chunks by 16 blocks", {}, by_blocks(16), all},
                                   {"chunks by 32 blocks", {}, by_blocks(32), all}};
  measure(group, copies);
  CHECK(cudaFreeHost(host));
}

// --- top-k with error feedback -------------------------------------------------------------------

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

SelectArgs select_args(const Step& step, float threshold) {
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

void run_select(const Step& step, float threshold) {
  const SelectArgs args = select_args(step, threshold);
  CHECK(cudaMemsetAsync(args.state, 0, tile_state_bytes(args.tiles)));
  pith_select_f32<<<static_cast<unsigned>(args.tiles), Pass::threads>>>(args);
}

// The host already knows the list's length, as in use from the step before.
void run_refine(const Step& step, std::size_t listed, std::size_t k) {
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

unsigned blocks_of(std::size_t threads) { return static_cast<unsigned>((threads + 255) / 256); }

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
bool same_results(const Step& step, const CubStep& cub, float threshold, std::size_t k,
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
float threshold_for(const Step& step, std::size_t k) {
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

bool measure_topk(std::size_t n, double density) {
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

void write_json(const char* file, const char* device, bool ok) {
  std::FILE* out = std::fopen(file, "w");
  if (!out) return;
  std::fprintf(out, "{\"device\": \"%s\", \"ok\": %s, \"rows\": [", device, ok ? "true" : "false");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::fprintf(out,
                 "%s\n  {\"case\": \"%s\", \"name\": \"%s\", \"us\": %.2f, \"gb_s\": %.2f, "
                 "\"of_copy\": %.4f}",
                 i ? "," : "", row.group.c_str(), row.name.c_str(), row.us, row.gigabytes,
                 row.of_copy);
  }
  std::fprintf(out, "\n]}\n");
  std::fclose(out);
}

}  // namespace

int main(int argc, char** argv) {
  const char* json = nullptr;
  std::size_t elements = 100'000'000;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--elements") == 0 && i + 1 < argc) {
      elements = std::strtoull(argv[++i], nullptr, 10) / 4096 * 4096;
    } else {
      std::fprintf(stderr, "usage: cuda_perf [--elements N] [--json FILE]\n");
      return 2;
    }
  }
  cudaDeviceProp device;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
    std::printf("cuda_perf: no GPU: skipped\n");
    return 77;
  }
  most_blocks = static_cast<unsigned>(device.multiProcessorCount) * 8;
  std::printf("%s, %d multiprocessors, %d rounds\n", device.name, device.multiProcessorCount,
              rounds);
  bool ok = true;
  // After each step, since a later one may not end.
  const auto leave_results = [&] {
    if (json) write_json(json, device.name, ok);
  };
  measure_dense(std::size_t{512} << 20);
  leave_results();
  for (const unsigned inputs : {4u, 8u}) measure_many(std::size_t{256} << 20, inputs);
  leave_results();
  measure_small();
  leave_results();
  measure_staging("staging to the host", std::size_t{256} << 20, true);
  measure_staging("staging from the host", std::size_t{256} << 20, false);
  leave_results();
  for (const double density : {0.01, 0.001}) {
    ok = measure_topk(elements, density) && ok;
    leave_results();
  }
  return ok ? 0 : 1;
}
