// GiB/s of the reduction kernels compared with memcpy. Counts the bytes that a call must move: two
// inputs and one output for a reduction, one of each for memcpy and casts.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "kernels/cast.hpp"
#include "kernels/reduce.hpp"

namespace {

using pith::DType;
using pith::Op;
using pith::kernels::Stores;

constexpr std::int64_t cache_bytes = 64 << 10;
constexpr std::int64_t memory_bytes = 64 << 20;

// Ones of any type: neither their sums nor their products leave the common range of values.
std::vector<std::byte> buffer(std::int64_t bytes, DType type) {
  std::vector<std::byte> data(static_cast<std::size_t>(bytes) + 64);
  if (!pith::is_float(type)) {
    std::memset(data.data(), 1, data.size());
    return data;
  }
  const float one = 1.0f;
  std::byte element[8];
  const std::size_t size = pith::size_of(type);
  pith::kernels::cast(element, type, reinterpret_cast<const std::byte*>(&one), DType::f32, 1);
  for (std::size_t i = 0; i + size <= data.size(); i += size) {
    std::memcpy(data.data() + i, element, size);
  }
  return data;
}

void set_bytes(benchmark::State& state, std::int64_t bytes_per_call) {
  state.SetBytesProcessed(state.iterations() * bytes_per_call);
}

void memory_copy(benchmark::State& state, std::int64_t bytes, Stores stores) {
  const auto in = buffer(bytes, DType::u8);
  auto out = buffer(bytes, DType::u8);
  for ([[maybe_unused]] auto _ : state) {
    pith::kernels::copy(out.data(), in.data(), static_cast<std::size_t>(bytes), stores);
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2 * bytes);
}

void reduce(benchmark::State& state, DType type, Op op, std::int64_t bytes, Stores stores) {
  const auto a = buffer(bytes, type);
  const auto b = buffer(bytes, type);
  auto out = buffer(bytes, type);
  const std::size_t count = static_cast<std::size_t>(bytes) / pith::size_of(type);
  for ([[maybe_unused]] auto _ : state) {
    pith::kernels::reduce(out.data(), a.data(), b.data(), count, type, op, stores);
    benchmark::ClobberMemory();
  }
  set_bytes(state, 3 * bytes);
}

void reduce_many(benchmark::State& state, DType type, int n, std::int64_t bytes) {
  std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(n), buffer(bytes, type));
  std::vector<const std::byte*> in;
  for (const auto& input : inputs) in.push_back(input.data());
  auto out = buffer(bytes, type);
  const std::size_t count = static_cast<std::size_t>(bytes) / pith::size_of(type);
  for ([[maybe_unused]] auto _ : state) {
    pith::kernels::reduce_many(out.data(), in.data(), n, count, type, Op::sum);
    benchmark::ClobberMemory();
  }
  set_bytes(state, (n + 1) * bytes);
}

void finish_avg(benchmark::State& state, DType type, std::int64_t bytes) {
  auto data = buffer(bytes, type);
  const std::size_t count = static_cast<std::size_t>(bytes) / pith::size_of(type);
  for ([[maybe_unused]] auto _ : state) {
    pith::kernels::finish_avg(data.data(), count, type, 3);
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2 * bytes);
}

void cast(benchmark::State& state, DType to, DType from) {
  const std::size_t count = cache_bytes / 4;
  const auto in = buffer(static_cast<std::int64_t>(count * pith::size_of(from)), from);
  auto out = buffer(static_cast<std::int64_t>(count * pith::size_of(to)), to);
  for ([[maybe_unused]] auto _ : state) {
    pith::kernels::cast(out.data(), to, in.data(), from, count);
    benchmark::ClobberMemory();
  }
  set_bytes(state, static_cast<std::int64_t>(count * (pith::size_of(from) + pith::size_of(to))));
}

template <class... Arguments>
void add(std::string name, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), arguments...);
}

void add_all() {
  add("memcpy/64KiB", memory_copy, cache_bytes, Stores::cached);
  add("memcpy/64MiB", memory_copy, memory_bytes, Stores::cached);
  add("memcpy/64MiB/streaming", memory_copy, memory_bytes, Stores::streaming);
  for (int t = 0; t < pith::dtype_count; ++t) {
    const auto type = static_cast<DType>(t);
    const std::string type_name(pith::name_of(type));
    for (const Op op : {Op::sum, Op::prod, Op::max, Op::min}) {
      const std::string name = "reduce/" + type_name + "/" + std::string(pith::name_of(op));
      add(name + "/8B", reduce, type, op, std::int64_t{8}, Stores::cached);
      add(name + "/64KiB", reduce, type, op, cache_bytes, Stores::cached);
      add(name + "/64MiB", reduce, type, op, memory_bytes, Stores::cached);
      add(name + "/64MiB/streaming", reduce, type, op, memory_bytes, Stores::streaming);
    }
    add("avg/" + type_name + "/64KiB", finish_avg, type, cache_bytes);
  }
  for (const int n : {3, 4, 8}) {
    add("many/float/" + std::to_string(n) + "/64KiB", reduce_many, DType::f32, n, cache_bytes);
    add("many/float/" + std::to_string(n) + "/64MiB", reduce_many, DType::f32, n, memory_bytes);
  }
  for (const DType type : {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2, DType::f64}) {
    add("cast/float/" + std::string(pith::name_of(type)), cast, type, DType::f32);
    add("cast/" + std::string(pith::name_of(type)) + "/float", cast, DType::f32, type);
  }
}

}  // namespace

int main(int argc, char** argv) {
  add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
