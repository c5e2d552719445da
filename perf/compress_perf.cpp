// Compression on one core: single kernels, whole steps of exact top-k with error feedback against
// the STL, and steps of ExDyna; and every scheme's calls between two ranks. See compress/README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "compress/spec.hpp"
#include "kernels/sparse.hpp"
#include "perf/compress/kernel_table.hpp"
#include "perf/compress/pith_step.hpp"
#include "perf/compress/scheme_table.hpp"
#include "perf/compress/step.hpp"
#include "perf/machine.hpp"

namespace {

using namespace pith_bench;
using pith::DType;
using pith::PassResult;

struct Options {
  std::size_t count = std::size_t{64} << 20;
  std::vector<double> densities = {0.001, 0.01, 0.1};
  std::vector<std::string> distributions = {"gauss", "laplace", "student", "layers"};
  std::string data, json;
  std::vector<std::string> parts = {"kernels", "steps", "exdyna"};
  std::vector<std::string> schemes = scheme_names();
  SchemeTable::Matrix matrix = {1024, 1024};
  int rounds = 5;
  int core = 0;
};

bool wants(const Options& options, const std::string& part) {
  return std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
}

// A dense bf16 ring of 8 ranks sends 2 * 7/8 * 2 = 3.5 bytes per element; at the returned rate a
// link needs as long for them as a core for compressing. Sparse messages are neglected.
double break_even_gbps(std::size_t count, double seconds) {
  return 3.5 * 8 * double(count) / seconds / 1e9;
}

void print_kernels(const Options& options, nlohmann::json& json) {
  const std::string& distribution = options.distributions.front();
  const Pages<float> values(options.count);
  fill(values.span(), distribution, options.data, 1);
  fmt::print("\nkernels alone, values: {}\n", distribution);
  fmt::print("{:<24}{:>9}{:>11}{:>12}{:>10}{:>11}\n", "kernel", "density", "ms", "dense GB/s",
             "memcpy %", "bits/pair");
  for (const KernelTime& time : time_kernels(values.span(), options.densities, options.rounds)) {
    const double speed = 4 * double(options.count) / time.seconds / 1e9;
    fmt::print("{:<24}{:>9}{:>11.3f}{:>12.1f}{:>10.0f}{:>11}\n", time.name,
               time.density > 0 ? fmt::format("{:g}%", 100 * time.density) : "", 1e3 * time.seconds,
               speed, 100 * time.memcpy_seconds / time.seconds,
               time.bits_per_pair > 0 ? fmt::format("{:.1f}", time.bits_per_pair) : "");
    json["kernels"].push_back({{"kernel", time.name},
                               {"distribution", distribution},
                               {"density", time.density},
                               {"ms", 1e3 * time.seconds},
                               {"dense_gb_s", speed},
                               {"share_of_memcpy", time.memcpy_seconds / time.seconds},
                               {"bits_per_pair", time.bits_per_pair}});
  }
}

void print_schemes(const Options& options, nlohmann::json& json) {
  const std::string& distribution = options.distributions.front();
  SchemeTable table(options.count, options.matrix, options.core, distribution, options.data);
  fmt::print("\nall-reduces of {} ranks, beside dense ones of float32, values: {}\n",
             SchemeTable::ranks, distribution);
  fmt::print("{:<24}{:>11}{:>11}{:>9}{:>13}{:>14}  {}\n", "scheme", "ms", "dense ms", "dense/",
             "compressing", "bits/element", "algorithm");
  for (const std::string& scheme : options.schemes) {
    const SchemeTime time = table.time(scheme, options.rounds);
    fmt::print("{:<24}{:>11.3f}{:>11.3f}{:>9.2f}{:>13}{:>14.3f}  {}\n", scheme, 1e3 * time.seconds,
               1e3 * time.dense_seconds, time.dense_seconds / time.seconds,
               time.compressing ? fmt::format("{:.0f}%", 100 * *time.compressing) : "", time.bits,
               time.algorithm);
    std::fflush(stdout);
    nlohmann::json share;  // null
    if (time.compressing) share = *time.compressing;
    json["schemes"].push_back({{"scheme", scheme},
                               {"spec", time.spec},
                               {"distribution", distribution},
                               {"ms", 1e3 * time.seconds},
                               {"dense_ms", 1e3 * time.dense_seconds},
                               {"share_compressing", share},
                               {"bits_per_element", time.bits},
                               {"algorithm", time.algorithm}});
  }
}

// The data of the steps, which all start from the same residual.
struct Arena {
  Pages<float> gradient, residual, accumulator, magnitudes, dense;
  Pages<std::uint32_t> indices;
  Pages<float> values;

  explicit Arena(const Options& options)
      : gradient(options.count),
        residual(options.count),
        accumulator(options.count),
        magnitudes(options.count),
        dense(options.count),
        indices(options.count / 2),
        values(options.count / 2) {}

  void load(const Options& options, const std::string& distribution) {
    fill(gradient.span(), distribution, options.data, 1);
    fill(residual.span(), distribution, options.data, 2);
    for (float& value : residual.span()) value *= 0.3f;
  }
  // `previous`: the k-th magnitude of the step before; `drift`: its ratio to the right one.
  Step step(double density, float previous, float drift = 1) {
    std::memcpy(accumulator.data(), residual.data(), 4 * residual.size());
    const auto k = std::max<std::size_t>(1, std::size_t(double(gradient.size()) * density));
    return {accumulator.data(),
            gradient.data(),
            gradient.size(),
            k,
            indices.data(),
            values.data(),
            indices.size(),
            previous * drift,
            std::fabs(std::log(drift))};
  }
};

// Equal for equal results: the list and the remaining accumulator.
std::uint64_t digest(const Arena& arena, const Step& step) {
  std::uint64_t hash = 0;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15u; };
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  for (std::size_t i = 0; i < step.k; ++i) {
    mix(step.indices[i] | std::uint64_t{bits(step.values[i])} << 32);
  }
  for (const float value : arena.accumulator.span()) mix(bits(value));
  return hash;
}

struct Contender {
  const char* name;
  std::function<void(Step&)> run;
  int rounds;
  std::vector<float> drifts = {1};  // ratios of the threshold before to the right one; in turn
  PithStep* pith = nullptr;         // has its own accumulator
  bool in_place = false;            // the accumulator already holds the gradient
  std::vector<double> seconds = {};
};

Contender contender_of(const char* name, PithStep& pith, int rounds, std::vector<float> drifts) {
  return {name, [&pith](Step& s) { pith.run(s); }, rounds, std::move(drifts), &pith, false};
}

double seconds_of(Arena& arena, Contender& contender, double density, float right, int round) {
  const auto drift = contender.drifts[std::size_t(round) % contender.drifts.size()];
  Step step = arena.step(density, right, drift);
  if (contender.in_place) {
    add_in_place(step.accumulator, step.gradient, step.count);
    step.gradient = nullptr;
  }
  if (contender.pith) contender.pith->load(step);
  const double start = seconds_now();
  contender.run(step);
  return seconds_now() - start;
}

void must_equal(std::uint64_t a, std::uint64_t b, const char* name) {
  if (a != b) throw std::runtime_error(fmt::format("{} selects otherwise than the STL", name));
}

// The dense result for the caller, from one rank's pairs.
void write_dense(const Step& step, float* out) {
  pith::kernels::scatter({reinterpret_cast<std::byte*>(out), DType::f32, 0, step.count,
                          step.indices, reinterpret_cast<const std::byte*>(step.values), DType::f32,
                          step.k, 1, true});
}

void time_steps(const Options& options, Arena& arena, const std::string& distribution,
                double density, nlohmann::json& json) {
  std::vector<Contender> all;
  const auto add = [&](Step& s) { add_in_place(s.accumulator, s.gradient, s.count); };
  all.push_back({"pass", add, options.rounds});
  PithStep pith(options.count, density);
  all.push_back(contender_of("pith", pith, options.rounds, {1.01f, 0.99f}));
  all.push_back(contender_of("pith_drift", pith, options.rounds, {1.1f, 1 / 1.1f}));
  all.push_back(
      {"stl", [&](Step& s) { step_stl(s, arena.magnitudes); }, std::min(options.rounds, 3)});
  all.push_back(contender_of("in place", pith, options.rounds, {1.01f, 0.99f}));
  all.back().in_place = true;
  all.push_back({"write", [&](Step& s) { write_dense(s, arena.dense.data()); }, options.rounds});

  Step reference = arena.step(density, 0);
  step_stl(reference, arena.magnitudes);
  const std::uint64_t expected = digest(arena, reference);
  for (std::size_t c = 1; c < 3; ++c) {
    Step step = arena.step(density, reference.smallest, all[c].drifts.front());
    if (all[c].pith) all[c].pith->load(step);
    all[c].run(step);
    if (all[c].pith) all[c].pith->store(step);
    must_equal(digest(arena, step), expected, all[c].name);
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (Contender& contender : all) {
      if (round >= contender.rounds) continue;
      contender.seconds.push_back(seconds_of(arena, contender, density, reference.smallest, round));
    }
  }
  std::vector<double> t;
  t.reserve(all.size());
  for (const Contender& contender : all) t.push_back(median(contender.seconds));
  fmt::print("{:<9}{:>7}{:>9.1f}{:>9.1f}{:>9.1f}{:>9.0f}{:>8.0f}%{:>9.1f}{:>7.0f}{:>8.0f}\n",
             distribution, fmt::format("{:g}%", 100 * density), 1e3 * t[0], 1e3 * t[1], 1e3 * t[2],
             1e3 * t[3], 100 * t[0] / t[1], t[3] / t[1],
             break_even_gbps(options.count, t[1] + t[5]), break_even_gbps(options.count, t[4]));
  std::fflush(stdout);
  json["steps"].push_back({{"distribution", distribution},
                           {"density", density},
                           {"pass_ms", 1e3 * t[0]},
                           {"pith_ms", 1e3 * t[1]},
                           {"pith_drift_ms", 1e3 * t[2]},
                           {"stl_ms", 1e3 * t[3]},
                           {"in_place_ms", 1e3 * t[4]},
                           {"write_ms", 1e3 * t[5]},
                           {"break_even_dense_gbps", break_even_gbps(options.count, t[1] + t[5])},
                           {"break_even_in_place_gbps", break_even_gbps(options.count, t[4])}});
}

// N = 8: every rank adds its whole gradient and selects in an eighth of the vector.
void time_exdyna(const Options& options, Arena& arena, double density, nlohmann::json& json) {
  constexpr std::size_t ranks = 8;
  Step reference = arena.step(density, 0);
  step_stl(reference, arena.magnitudes);
  const float threshold = reference.smallest;
  PassResult result;
  const auto select = [&](Step& s, bool adds) {
    const auto* gradient = adds ? reinterpret_cast<const std::byte*>(s.gradient) : nullptr;
    pith::kernels::select({{s.accumulator, gradient, DType::f32, s.count / ranks, false, &result},
                           threshold,
                           0,
                           s.indices,
                           s.values,
                           s.capacity});
  };
  std::vector<Contender> all;
  all.push_back(
      {"add", [&](Step& s) { add_in_place(s.accumulator, s.gradient, s.count); }, options.rounds});
  all.push_back({"step",
                 [&](Step& s) {
                   select(s, true);
                   const std::size_t own = s.count / ranks;
                   pith::kernels::accumulate({s.accumulator + own,
                                              reinterpret_cast<const std::byte*>(s.gradient + own),
                                              DType::f32, s.count - own, false, &result});
                 },
                 options.rounds});
  all.push_back({"own part", [&](Step& s) { select(s, false); }, options.rounds});
  PithStep pith(options.count, density);
  all.push_back(contender_of("exact", pith, options.rounds, {1}));
  for (int round = 0; round < options.rounds; ++round) {
    for (Contender& contender : all) {
      contender.seconds.push_back(seconds_of(arena, contender, density, threshold, round));
    }
  }
  std::vector<double> t;
  t.reserve(all.size());
  for (const Contender& contender : all) t.push_back(median(contender.seconds));
  fmt::print("{:>7}{:>9.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.3f}{:>14.1f}\n",
             fmt::format("{:g}%", 100 * density), 1e3 * t[0], 1e3 * t[1], 1e3 * t[2], 1e3 * t[3],
             t[1] / t[0], t[3] / t[2]);
  json["exdyna"].push_back({{"density", density},
                            {"add_ms", 1e3 * t[0]},
                            {"step_ms", 1e3 * t[1]},
                            {"own_part_ms", 1e3 * t[2]},
                            {"exact_ms", 1e3 * t[3]}});
}

void write_json(const std::string& path, const nlohmann::json& json) {
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  file.close();
  if (!file) throw std::runtime_error(fmt::format("--json: '{}' could not be written", path));
}

void run(const Options& options) {
  nlohmann::json json;
  json["cpu"] = cpu_model();
  json["count"] = options.count;
  fmt::print("# {} float32 elements, CPU: {}\n", options.count, cpu_model());
  // First, as its ranks may use two cores.
  if (wants(options, "schemes")) print_schemes(options, json);
  pin_to_core(options.core);
  if (wants(options, "kernels")) print_kernels(options, json);
  if (wants(options, "steps") || wants(options, "exdyna")) {
    Arena arena(options);
    if (wants(options, "steps")) {
      fmt::print("\nexact top-k with error feedback, ms; pass: read two, write one\n");
      fmt::print("{:<9}{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>15}\n", "values", "", "pass", "pith",
                 "drift10%", "stl", "of pass", "stl/", "links of Gb/s");
      for (const std::string& distribution : options.distributions) {
        arena.load(options, distribution);
        for (const double density : options.densities) {
          time_steps(options, arena, distribution, density, json);
        }
      }
    }
    if (wants(options, "exdyna")) {
      const std::string& distribution = options.distributions.front();
      fmt::print("\nExDyna of 8 ranks, ms, values: {}\n", distribution);
      fmt::print("{:>7}{:>9}{:>12}{:>12}{:>12}{:>12}{:>14}\n", "", "add", "step", "own part",
                 "exact", "step/add", "exact/own");
      arena.load(options, distribution);
      for (const double density : options.densities) time_exdyna(options, arena, density, json);
    }
  }
  if (!options.json.empty()) write_json(options.json, json);
}

// Empty: nothing.
std::string what_is_wrong_with(const std::string& spec) {
  const pith::Expected<pith::Spec> parsed = pith::Spec::parse(spec);
  return parsed ? "" : parsed.error().message();
}

void add_flags(CLI::App& app, Options& options) {
  app.add_option("--count", options.count, "elements, rounded up to a multiple of 1024")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 28));
  app.add_option("--density", options.densities, "shares that are selected, below 0.2");
  app.add_option("--distribution", options.distributions, "all parts but steps take the first")
      ->check(CLI::IsMember({"gauss", "laplace", "student", "layers", "data"}));
  app.add_option("--data", options.data, "file or folder of .f32 and .f16 gradients, for data")
      ->check(CLI::ExistingPath);
  app.add_option("--part", options.parts, "what is timed")
      ->check(CLI::IsMember({"kernels", "steps", "exdyna", "schemes"}));
  app.add_option("--schemes", options.schemes, "specs for the part schemes; without, all schemes")
      ->check([](const std::string& text) { return what_is_wrong_with(text); });
  app.add_option("--matrix", options.matrix,
                 "rows and columns of the matrices for the part schemes")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 28));
  app.add_option("--rounds", options.rounds, "timed rounds; medians are shown")
      ->check(CLI::Range(1, 1000));
  app.add_option("--core", options.core,
                 "core to run on, of those that this process may use; schemes: and the next")
      ->check(CLI::Range(0, core_count() - 1));
  app.add_option("--json", options.json, "file for the results");
}

// What the flags' own checks do not see, before anything is measured.
void check_together(Options& options) {
  for (const double density : options.densities) {
    if (density > 0 && density < 0.2) continue;
    throw std::runtime_error(fmt::format("--density: {} is not between 0 and 0.2", density));
  }
  const auto& named = options.distributions;
  const bool has_data = std::find(named.begin(), named.end(), "data") != named.end();
  if (has_data && options.data.empty()) {
    throw std::runtime_error("--distribution: data needs --data, a file or folder of gradients");
  }
  if (!options.data.empty() && !has_data) options.distributions.emplace_back("data");
  const bool can_write = options.json.empty() || std::ofstream(options.json, std::ios::app);
  if (!can_write) {
    throw std::runtime_error(fmt::format("--json: '{}' cannot be written", options.json));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Compression kernels and steps on one core");
  add_flags(app, options);
  CLI11_PARSE(app, argc, argv);
  options.count = (options.count + 1023) / 1024 * 1024;
  try {
    check_together(options);
    run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "compress_perf: {}\n", error.what());
    return 1;
  }
  return 0;
}
