// What cuda_perf measures with: contenders that run interleaved, and the table of their times.
//
// Times are medians over rounds, measured by events; contenders of a case run interleaved. "of
// copy" counts the bytes that the work must move and divides by the rate of a device copy in the
// same run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cuda/kernels/list.hpp"

namespace pith::cuda::perf {

inline void check(cudaError_t result, const char* what) {
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
inline std::vector<Row> rows;
inline double copy_rate = 0;  // bytes per millisecond
inline int rounds = 20;
inline unsigned most_blocks = 0;

inline void measure(const char* group, std::vector<Contender>& contenders) {
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

inline unsigned walk_blocks(std::size_t bytes) {
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

inline void fill(float* out, std::size_t count, std::uint32_t seed) {
  fill_normal<<<static_cast<unsigned>((count + 255) / 256), 256>>>(out, count, seed);
  CHECK(cudaGetLastError());
}

inline void write_json(const char* file, const char* device, bool ok) {
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

}  // namespace pith::cuda::perf
