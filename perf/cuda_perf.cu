// Kernels on one GPU, compared with the GPU's own copies and with CUB's algorithms composed to the
// same result. Prints a table, and JSON with --json FILE. Built by nvcc alone, see
// tools/gpu/run.sh.
//
// The bytes that the work must move are n + 1 vectors for a sum of n into one, even if more passes
// move more.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "perf/cuda/measure.cuh"
#include "perf/cuda/topk.cuh"

namespace pith::cuda {

#define PITH_CUDA_DEFINE(name, ...) PITH_CUDA_GLOBAL(pith_##name, __VA_ARGS__)
PITH_CUDA_DEFINE(reduce_f32_sum, Reduce<float, Op::sum>)
PITH_CUDA_DEFINE(reduce_bf16_sum, Reduce<Bfloat, Op::sum>)
PITH_CUDA_DEFINE(reduce_f16_sum, Reduce<Half, Op::sum>)
PITH_CUDA_DEFINE(cast_f32_bf16, Cast<Bfloat, float>)
PITH_CUDA_DEFINE(copy, Copy)

}  // namespace pith::cuda

using namespace pith;
using namespace pith::cuda;
using namespace pith::cuda::perf;

namespace {

ReduceArgs reduce_args(std::initializer_list<const std::byte*> in, std::byte* out,
                       std::size_t count) {
  ReduceArgs args{count, static_cast<std::uint32_t>(in.size()), 1, 0, {}, {out}};
  std::copy(in.begin(), in.end(), args.in);
  return args;
}

MapArgs copy_args(std::byte* out, const std::byte* in, std::size_t bytes) {
  return {out, in, bytes, {}, nullptr, 0};
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
