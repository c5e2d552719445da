#include "perf/compress/kernel_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "compress/momentum/held_back.hpp"
#include "compress/thresholds/fitted_threshold.hpp"
#include "compress/thresholds/sign_election.hpp"
#include "kernels/cast.hpp"
#include "kernels/coded_values.hpp"
#include "kernels/elections/elections.hpp"
#include "kernels/host_compute.hpp"
#include "kernels/low_rank/factors.hpp"
#include "kernels/sparse.hpp"
#include "kernels/varying/varying.hpp"
#include "perf/compress/vectors.hpp"
#include "perf/machine.hpp"

namespace pith_bench {

namespace {

using namespace pith;

struct Timed {
  std::string name;
  double density;
  std::function<void()> prepare, run;
  std::vector<double> seconds = {};
  double bits_per_pair = 0;
};

const std::byte* bytes_of(const float* values) {
  return reinterpret_cast<const std::byte*>(values);
}

// The kernels' data.
struct Bench {
  static constexpr std::size_t lists = 8;
  static constexpr std::size_t chunk = std::size_t{1} << 20;  // span of a sum of lists

  explicit Bench(std::span<const float> gradients)
      : count(gradients.size()),
        room(count / 2),
        gradient(gradients),
        accumulator(count),
        out(4 * count),
        narrow(2 * count),
        indices(room),
        values(room),
        other_indices(room),
        other_values(room),
        coded(VaryingCoding{}.most_bytes(count) + 64),
        sums(chunk),
        touched(chunk / 32) {}

  PassResult select(float cut, const std::byte* from, DType type) {
    PassResult found;
    kernels::select({{accumulator.data(), from, type, count, false, &found},
                     cut,
                     0,
                     indices.data(),
                     values.data(),
                     room});
    return found;
  }
  void clear() { std::memset(accumulator.data(), 0, 4 * count); }

  // Lists about count * density elements, those that a threshold selects.
  void make_list(double density) {
    const std::size_t k = std::max<std::size_t>(1, std::size_t(double(count) * density));
    std::vector<float> sample(std::min(count, chunk));
    for (std::size_t i = 0; i < sample.size(); ++i) {
      sample[i] = std::fabs(gradient[i * count / sample.size()]);
    }
    const auto rank = std::ptrdiff_t(double(sample.size()) * density);
    std::nth_element(sample.begin(), sample.begin() + rank, sample.end(), std::greater<>());
    threshold = sample[std::size_t(rank)];
    clear();
    listed = select(0.97f * threshold, bytes_of(gradient.data()), DType::f32).selected;
    listed = std::min(listed, room);
    kept = std::min(k, listed);
  }

  std::size_t count, room;
  std::span<const float> gradient;
  Pages<float> accumulator;
  Pages<std::byte> out, narrow;
  Pages<std::uint32_t> indices;
  Pages<float> values;
  Pages<std::uint32_t> other_indices;
  Pages<float> other_values;
  Pages<std::byte> coded;
  Pages<float> sums;
  Pages<std::uint32_t> touched;
  std::size_t listed = 0, kept = 0, written = 0;
  float threshold = 0;
  double squares = 0;
  float smallest = 0;
  PassResult result;
  MagnitudeHistogram histogram;
  Decoded decoded;
};

void run_rounds(std::vector<Timed>& all, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (Timed& timed : all) {
      if (timed.prepare) timed.prepare();
      const double start = seconds_now();
      timed.run();
      timed.seconds.push_back(seconds_now() - start);
    }
  }
}

void add_passes(std::vector<Timed>& all, Bench& bench) {
  const auto clear = [&bench] { bench.clear(); };
  const auto pass = [&bench](const std::byte* gradient, DType type, MagnitudeHistogram* histogram) {
    kernels::accumulate(
        {bench.accumulator.data(), gradient, type, bench.count, false, &bench.result, histogram});
  };
  const std::byte* f32 = bytes_of(bench.gradient.data());
  const std::byte* bf16 = bench.narrow.data();
  all.push_back({"accumulate", 0, clear, [=] { pass(f32, DType::f32, nullptr); }});
  all.push_back({"accumulate f16", 0, clear, [=] { pass(bf16, DType::f16, nullptr); }});
  all.push_back({"accumulate bf16", 0, clear, [=] { pass(bf16, DType::bf16, nullptr); }});
  all.push_back({"momentum", 0, clear, [=, &bench] {
                   kernels::correct_momentum(
                       {bench.accumulator.data(), f32, DType::f32, bench.count, 0.9F, 1});
                 }});
  all.push_back({"accumulate, histogram", 0, clear,
                 [=, &bench] { pass(f32, DType::f32, &bench.histogram); }});
  all.push_back({"histogram", 0, nullptr, [&bench] {
                   kernels::histogram({bench.gradient.data(), bench.count, &bench.histogram});
                 }});
}

void add_selects(std::vector<Timed>& all, Bench& bench, double density) {
  const auto clear = [&bench] { bench.clear(); };
  const auto fill_accumulator = [&bench] {
    std::memcpy(bench.accumulator.data(), bench.gradient.data(), 4 * bench.count);
  };
  const float threshold = bench.threshold;
  const auto add = [&](const char* name, const std::function<void()>& prepare,
                       const std::byte* gradient, DType type) {
    all.push_back(
        {name, density, prepare, [=, &bench] { bench.select(threshold, gradient, type); }});
  };
  add("select", clear, bytes_of(bench.gradient.data()), DType::f32);
  add("select bf16", clear, bench.narrow.data(), DType::bf16);
  add("select of accumulator", fill_accumulator, nullptr, DType::f32);
  // In two halves, as a list has room for one.
  all.push_back({"draw", density, fill_accumulator, [=, &bench] {
                   for (std::size_t first = 0; first < bench.count; first += bench.room) {
                     const std::size_t part = std::min(bench.room, bench.count - first);
                     kernels::draw({bench.accumulator.data() + first, part, threshold, 1,
                                    static_cast<std::uint32_t>(first), bench.indices.data(),
                                    bench.values.data(), &bench.result});
                   }
                 }});
}

void add_list_kernels(std::vector<Timed>& all, Bench& bench, double density) {
  const auto copy_list = [&bench] {
    std::memcpy(bench.other_indices.data(), bench.indices.data(), 4 * bench.listed);
    std::memcpy(bench.other_values.data(), bench.values.data(), 4 * bench.listed);
  };
  const auto add = [&](const char* name, const std::function<void()>& run) {
    all.push_back({name, density, nullptr, run});
  };
  all.push_back({"keep_largest", density, copy_list, [&bench] {
                   kernels::keep_largest({bench.other_indices.data(), bench.other_values.data(),
                                          bench.listed, bench.kept, bench.accumulator.data(),
                                          &bench.smallest, &bench.squares});
                 }});
  add("take bf16", [&bench] {
    kernels::take({bench.accumulator.data(), bench.indices.data(), bench.listed, bench.out.data(),
                   DType::bf16, &bench.squares});
  });
  add("round_values bf16", [&bench] {
    kernels::round_values({bench.accumulator.data(), bench.indices.data(), bench.values.data(),
                           bench.listed, bench.out.data(), DType::bf16});
  });
  add("give_back bf16", [&bench] {
    kernels::give_back({bench.accumulator.data(), bench.indices.data(), bench.out.data(),
                        bench.listed, DType::bf16});
  });
  add("sum_values bf16 x8", [&bench] {
    const std::byte* in[Bench::lists];
    for (std::size_t i = 0; i < Bench::lists; ++i) in[i] = bench.narrow.data() + 2 * i;
    kernels::sum_values({bench.out.data(), in, Bench::lists, bench.listed, DType::bf16,
                         bench.accumulator.data(), bench.indices.data()});
  });
  add("sum_lists bf16 x8", [&bench] {
    // Eight adjacent chunks of the list stand for eight ranks' lists of one range.
    const std::size_t chunks = std::max<std::size_t>(1, bench.count / Bench::chunk);
    for (std::size_t c = 0; c < chunks; ++c) {
      const auto first = static_cast<std::uint32_t>(c * Bench::chunk);
      const auto* from =
          std::lower_bound(bench.indices.data(), bench.indices.data() + bench.listed, first);
      const auto* to = std::lower_bound(
          from, static_cast<const std::uint32_t*>(bench.indices.data() + bench.listed),
          first + Bench::chunk);
      const SparseList list{from, bench.out.data(), static_cast<std::size_t>(to - from)};
      const std::array<SparseList, Bench::lists> lists = {list, list, list, list,
                                                          list, list, list, list};
      std::size_t found = 0;
      kernels::sum_lists({lists.data(), lists.size(), DType::bf16, first, Bench::chunk,
                          bench.sums.data(), reinterpret_cast<std::uint64_t*>(bench.touched.data()),
                          bench.other_indices.data(), bench.other_values.data(), &found});
    }
  });
  add("scatter f32", [&bench] {
    kernels::scatter({bench.out.data(), DType::f32, 0, bench.count, bench.indices.data(),
                      bench.narrow.data(), DType::bf16, bench.listed, 8});
  });
  add("scatter bf16", [&bench] {
    kernels::scatter({bench.out.data(), DType::bf16, 0, bench.count, bench.indices.data(),
                      bench.narrow.data(), DType::bf16, bench.listed, 8});
  });
  add("encode_indices", [&bench] {
    kernels::encode_indices(
        {bench.indices.data(), bench.listed, 0, bench.count, bench.coded.data(), &bench.written});
  });
  add("decode_indices", [&bench] {
    kernels::decode_indices({bench.coded.data(), bench.written, 0, bench.count,
                             bench.other_indices.data(), bench.room, &bench.decoded});
  });
}

// Of all elements in few bits. Every byte is a code, so `coded` needs no preparation to be read.
void add_codings(std::vector<Timed>& all, Bench& bench) {
  using enum Coding::Kind;
  const std::pair<const char*, Coding> codings[] = {
      {"bf16", {bf16, 16, false, 64}},
      {"fp16", {f16, 16, false, 256}},
      {"int8", {levels, 8, false, 256}},
      {"dynamic", {dynamic, 8, false, 256}},
      {"fp8", {e4m3, 8, false, 256}},
      {"fp8 e5m2", {e5m2, 8, false, 256}},
      {"qsgd 8", {levels, 8, true, 512}},
      {"qsgd 4", {levels, 4, true, 512}},
      {"qsgd 2", {levels, 2, true, 512}},
      {"natural", {powers, 8, true, 512}},
      {"sign", {signs, 1, false, 1024}},
      {"efsign", {mean_signs, 1, false, 1024}},
      {"terngrad", {.kind = levels, .bits = 2, .draws = true, .block = 512, .clip = 2.5F}},
      {"onebit", {two_means, 1, false, 1024}},
      {"3lc", {ternary, 8, false, 1024}}};
  for (const auto& [name, coding] : codings) {
    all.push_back({fmt::format("encode {}", name), 0, nullptr, [&bench, coding] {
                     kernels::encode_values(
                         {coding, {}, bench.gradient.data(), bench.count, bench.coded.data()});
                   }});
    all.push_back({fmt::format("decode {}", name), 0, nullptr, [&bench, coding] {
                     kernels::decode_values({coding, bench.coded.data(), bench.count,
                                             bench.out.data(), DType::f32, 1});
                   }});
    all.push_back(
        {fmt::format("sum {} x8", name), 0, nullptr, [&bench, coding] {
           std::array<const std::byte*, Bench::lists> in;
           in.fill(bench.coded.data());
           kernels::sum_coded({coding, {}, bench.out.data(), in.data(), in.size(), bench.count});
         }});
  }
}

// To a length that depends on the values.
void add_varying(std::vector<Timed>& all, Bench& bench) {
  const std::pair<const char*, VaryingCoding> codings[] = {
      {"bounded 1e-3", {.kind = VaryingCoding::Kind::bounded, .relative = 1e-3F}},
      {"bounded 1e-2", {.kind = VaryingCoding::Kind::bounded, .relative = 1e-2F}},
      {"lossless", {.kind = VaryingCoding::Kind::lossless}}};
  for (const auto& [name, coding] : codings) {
    const auto encode = [&bench, coding] {
      kernels::encode_varying(
          {coding, bench.gradient.data(), bench.count, bench.coded.data(), &bench.written});
    };
    all.push_back({fmt::format("encode {}", name), 0, nullptr, encode});
    all.push_back({fmt::format("decode {}", name), 0, encode, [&bench, coding] {
                     auto* const out = reinterpret_cast<float*>(bench.out.data());
                     std::size_t read = 0;
                     kernels::decode_varying(
                         {coding, bench.coded.data(), bench.written, bench.count, out, &read});
                   }});
  }
}

// Of the whole vector as a matrix of 1024 columns, with factors of four columns.
void add_factors(std::vector<Timed>& all, Bench& bench) {
  const FactorShape shape{bench.count / 1024, 1024, 4};
  const auto add = [&](const char* name, auto run) { all.push_back({name, 0, nullptr, run}); };
  const float* const left = bench.sums.data();
  const float* const right = bench.gradient.data();
  add("project, rank 4", [=, &bench] {
    kernels::project({shape, bench.gradient.data(), right, bench.sums.data()});
  });
  add("back_project, rank 4", [=, &bench] {
    kernels::back_project({shape, bench.gradient.data(), left, bench.values.data(), true});
  });
  add("add_product, rank 4", [=, &bench] {
    kernels::add_product({shape, left, right, 1e-9F, bench.accumulator.data()});
  });
  add("put_product, rank 4", [=, &bench] {
    kernels::put_product({shape, left, right, 1, bench.out.data(), DType::f32});
  });
  // Of arc-topk, in the parts of its calls: rows are sketched while they are in the cache.
  add("sketch, 4 columns", [=, &bench] {
    constexpr std::size_t rows_at_once = 32;
    for (std::size_t row = 0; row < shape.rows; row += rows_at_once) {
      const std::size_t rows = std::min(rows_at_once, shape.rows - row);
      const std::size_t first = row * shape.columns;
      kernels::accumulate({bench.accumulator.data() + first,
                           bytes_of(bench.gradient.data() + first), DType::f32,
                           rows * shape.columns, false, &bench.result});
      kernels::project({{rows, shape.columns, shape.rank},
                        bench.accumulator.data() + first,
                        right,
                        bench.sums.data() + row * shape.rank});
    }
  });
}

// clt-k's filter of residuals: a part is held back before a call, and comes back after it.
void add_filter(std::vector<Timed>& all, Bench& bench) {
  constexpr std::size_t at_once = std::size_t{1} << 18;
  const auto host = std::make_shared<HostCompute>();
  const auto held = std::make_shared<HeldBack>(0.9F, bench.count, nullptr);
  const auto hold = [host, held, &bench] {
    while (!held->is_whole()) held->hold(*host, bench.accumulator.data(), at_once);
  };
  all.push_back({"hold residuals back", 0, [held] { held->begin(); }, hold});
  all.push_back({"release residuals", 0,
                 [held, hold] {
                   held->begin();
                   hold();
                 },
                 [host, held, &bench] {
                   while (!held->is_released()) {
                     held->release(*host, bench.accumulator.data(), at_once);
                   }
                 }});
}

// What decides which elements a call elects, beside the passes over the vector.
void add_rules(std::vector<Timed>& all, Bench& bench, double density) {
  const auto count_magnitudes = [&bench] {
    bench.histogram = {};
    kernels::histogram({bench.gradient.data(), bench.count, &bench.histogram});
  };
  const auto add_fit = [&](const char* name, TailLaw law) {
    all.push_back({name, density, count_magnitudes, [=, &bench] {
                     constexpr std::uint32_t stages = 3;
                     bench.smallest =
                         fitted_threshold(bench.histogram, bench.count, density, law, stages);
                   }});
  };
  add_fit("fit exponential", TailLaw::exponential);
  add_fit("fit pareto", TailLaw::pareto);
  // Of adaptive, among the candidates that a histogram leaves.
  all.push_back({"elect both signs", density, nullptr, [&bench] {
                   const auto candidates =
                       bench.gradient.first(std::min(bench.count, 2 * bench.kept));
                   const std::span<std::uint32_t> room{
                       reinterpret_cast<std::uint32_t*>(bench.out.data()), candidates.size()};
                   const SignElection election(candidates, (bench.kept + 1) / 2, room);
                   bench.smallest = election.least();
                 }});
}

void report(const std::vector<Timed>& all, double bits, std::vector<KernelTime>& times) {
  const double copied = median(all.front().seconds);
  for (const Timed& timed : all) {
    times.push_back({timed.name, timed.density, median(timed.seconds), copied,
                     timed.name == "encode_indices" ? bits : 0});
  }
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

std::vector<KernelTime> time_kernels(std::span<const float> values,
                                     const std::vector<double>& densities, int rounds) {
  Bench bench(values);
  kernels::cast(bench.narrow.data(), DType::bf16, bytes_of(values.data()), DType::f32,
                values.size());
  const auto copy = [&bench] {
    std::memcpy(bench.out.data(), bench.gradient.data(), 4 * bench.count);
  };
  std::vector<KernelTime> times;
  std::vector<Timed> passes;
  passes.push_back({"memcpy", 0, nullptr, copy});
  add_passes(passes, bench);
  add_codings(passes, bench);
  add_varying(passes, bench);
  add_factors(passes, bench);
  add_filter(passes, bench);
  run_rounds(passes, rounds);
  report(passes, 0, times);
  for (const double density : densities) {
    // Selecting overwrites the list, so it comes after the kernels that read it.
    bench.make_list(density);
    std::vector<Timed> lists;
    lists.push_back({"memcpy", density, nullptr, copy});
    add_list_kernels(lists, bench, density);
    run_rounds(lists, rounds);
    report(lists, 16 + 8 * double(bench.written) / double(bench.listed), times);
    std::vector<Timed> selects;
    selects.push_back({"memcpy", density, nullptr, copy});
    add_selects(selects, bench, density);
    add_rules(selects, bench, density);
    run_rounds(selects, rounds);
    report(selects, 0, times);
  }
  return times;
}

}  // namespace pith_bench
