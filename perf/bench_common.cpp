#include "bench_common.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench_collective.hpp"
#include "machine.hpp"

namespace pith_bench {
namespace {

constexpr std::size_t private_alignment = 4096;
constexpr std::int64_t iters_min = 3;
constexpr std::int64_t iters_max = 200'000;

struct Buffers {
  float* send;
  float* recv;
  std::size_t count;
};

void check(const Settings& settings, World& world, Contender& contender, const Buffers& at,
           int pass) {
  for (std::size_t i = 0; i < at.count; ++i) at.send[i] = element(i, world.rank(), pass);
  std::fill_n(at.recv, at.count, std::numeric_limits<float>::quiet_NaN());
  world.barrier();
  contender.call();
  if (!contender.has_result()) return;
  const std::size_t received = received_count(settings.collective, at.count, world);
  for (std::size_t i = 0; i < received; ++i) {
    const float expected = expected_element(settings.collective, i, at.count, world, pass);
    if (at.recv[i] == expected) continue;
    throw std::runtime_error(fmt::format("wrong result: element {} of {} is {}, expected {}", i,
                                         received, at.recv[i], expected));
  }
}

// The slowest rank's seconds for `iters` consecutive calls.
double time_batch(World& world, Contender& contender, std::int64_t iters) {
  world.barrier();
  const double start = seconds_now();
  for (std::int64_t i = 0; i < iters; ++i) contender.call();
  return world.max(seconds_now() - start);
}

// Number of calls that fills a batch. Its own calls are part of the warm-up. The better of two
// batches counts, since one is easily disturbed by other load.
std::int64_t choose_iters(const Settings& settings, World& world, Contender& contender) {
  if (settings.iters != "auto") return std::stoll(settings.iters);
  const double wanted = settings.batch_ms * 1e-3;
  std::int64_t iters = 1;
  double took = time_batch(world, contender, iters);
  while (took < wanted / 4 && iters < iters_max) {
    iters *= 4;
    took = time_batch(world, contender, iters);
    took = std::min(took, time_batch(world, contender, iters));
  }
  const double fit = wanted * static_cast<double>(iters) / took;
  return std::clamp(static_cast<std::int64_t>(fit), iters_min, iters_max);
}

Row measure_size(const Settings& settings, World& world, Contender& contender, const Buffers& at) {
  world.barrier();  // no rank uses the last size's buffers
  contender.prepare(at.send, at.recv, at.count);
  check(settings, world, contender, at, 0);
  const std::int64_t iters = choose_iters(settings, world, contender);
  time_batch(world, contender, iters);
  std::vector<double> times_us;
  for (int batch = 0; batch < settings.batches; ++batch) {
    const double took = time_batch(world, contender, iters);
    times_us.push_back(took * 1e6 / static_cast<double>(iters));
  }
  check(settings, world, contender, at, 1);
  std::sort(times_us.begin(), times_us.end());
  Row row;
  row.bytes = at.count * sizeof(float);
  row.iters = iters;
  row.batches = settings.batches;
  const std::size_t half = times_us.size() / 2;
  row.us = times_us.size() % 2 != 0 ? times_us[half] : (times_us[half - 1] + times_us[half]) / 2;
  row.us_min = times_us.front();
  row.us_max = times_us.back();
  return row;
}

class Memory {
 public:
  Memory(bool own, Contender& contender, std::size_t bytes) : own_(own), contender_(contender) {
    pointer_ = own ? contender.allocate(bytes) : contender.Contender::allocate(bytes);
    if (pointer_ == nullptr) throw std::runtime_error(fmt::format("no memory: {} bytes", bytes));
    std::memset(pointer_, 0, bytes);  // touches all pages before timing starts
  }
  ~Memory() { own_ ? contender_.release(pointer_) : contender_.Contender::release(pointer_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  float* floats() const { return static_cast<float*>(pointer_); }

 private:
  bool own_;
  Contender& contender_;
  void* pointer_;
};

double bus_gbytes_per_s(const Row& row, const Settings& settings) {
  return bus_factor(settings.collective, settings.ranks) * static_cast<double>(row.bytes) /
         (row.us * 1e3);
}

std::string valid_iters(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text == "auto" || (parsed.ec == std::errc() && parsed.ptr == end && value > 0)) return "";
  return fmt::format("--iters is '{}', expected auto or a positive number", text);
}

}  // namespace

void* Contender::allocate(std::size_t bytes) {
  const std::size_t pages = (bytes + private_alignment - 1) / private_alignment;
  return std::aligned_alloc(private_alignment, std::max<std::size_t>(pages, 1) * private_alignment);
}

void Contender::release(void* pointer) { std::free(pointer); }

void add_options(CLI::App& app, Settings& settings) {
  const CLI::AsSizeValue in_bytes(false);  // 64k, 64KiB and 65536 are the same
  app.add_option("--ranks", settings.ranks, "number of ranks")->check(CLI::Range(1, ranks_max));
  app.add_option("--memory", settings.memory, "registered (the library's own memory) or private")
      ->check(CLI::IsMember({"registered", "private"}));
  app.add_option("--min", settings.min_bytes, "smallest size in bytes")->transform(in_bytes);
  app.add_option("--max", settings.max_bytes, "largest size in bytes")->transform(in_bytes);
  app.add_option("--factor", settings.factor, "from one size to the next")
      ->check(CLI::Range(2, 1024));
  app.add_option("--sizes", settings.sizes, "sizes in bytes, in place of min, max and factor")
      ->delimiter(',')
      ->transform(in_bytes);
  app.add_option("--iters", settings.iters, "calls in a batch, or auto")->check(valid_iters);
  app.add_option("--batches", settings.batches, "timed batches a size")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--batch-ms", settings.batch_ms, "length of a batch where --iters is auto")
      ->check(CLI::Range(0.01, 1e5));
  app.add_option("--json", settings.json_path, "also write the results to this file");
  app.add_option("--transport", settings.transport, "transport, by the library's own name");
  app.add_flag("--threads", settings.threads, "ranks are threads of one process");
  app.add_flag("--pin,!--no-pin", settings.pin, "bind rank i to core i % cores (default)");
}

std::vector<std::size_t> sizes_bytes(const Settings& settings) {
  std::vector<std::size_t> sizes = settings.sizes;
  if (sizes.empty()) {
    for (std::size_t size = std::max(settings.min_bytes, sizeof(float)); size < settings.max_bytes;
         size *= settings.factor) {
      sizes.push_back(size);
    }
    sizes.push_back(settings.max_bytes);
  }
  for (std::size_t& size : sizes) {
    const std::size_t count = std::max(size / sizeof(float), std::size_t{1});
    size = whole_count(settings.collective, count, settings.ranks) * sizeof(float);
  }
  return sizes;
}

std::vector<Row> measure(const Settings& settings, World& world, Contender& contender) {
  const std::vector<std::size_t> sizes = sizes_bytes(settings);
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());
  const bool own = settings.memory == "registered";
  const Memory send(own, contender, largest);
  const Memory recv(own, contender, largest);
  std::vector<Row> rows;
  for (const std::size_t bytes : sizes) {
    const Buffers at{send.floats(), recv.floats(), bytes / sizeof(float)};
    rows.push_back(measure_size(settings, world, contender, at));
  }
  world.barrier();  // no rank frees memory that another still reads
  return rows;
}

void report(const Settings& settings, const Identity& identity, const std::vector<Row>& rows) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  const std::string cpu = cpu_model();
  const char* const mode = settings.threads ? "threads" : "processes";
  fmt::print("# {} ({}), {} float32, {} {}, {} memory, transport {}{}{}\n", identity.contender,
             identity.library, name_of(settings.collective), settings.ranks, mode, settings.memory,
             identity.transport, identity.setting.empty() ? "" : ", ", identity.setting);
  fmt::print("# {} cores, {}; results checked\n", cores, cpu);
  fmt::print("{:>12} {:>9} {:>12} {:>12} {:>12} {:>11}\n", "bytes", "iters", "us", "us_min",
             "us_max", "busbw GB/s");
  nlohmann::json out;
  out["rows"] = nlohmann::json::array();
  for (const Row& row : rows) {
    const double bus = bus_gbytes_per_s(row, settings);
    fmt::print("{:>12} {:>9} {:>12.3f} {:>12.3f} {:>12.3f} {:>11.3f}\n", row.bytes, row.iters,
               row.us, row.us_min, row.us_max, bus);
    out["rows"].push_back({{"bytes", row.bytes},
                           {"iters", row.iters},
                           {"batches", row.batches},
                           {"us", row.us},
                           {"us_min", row.us_min},
                           {"us_max", row.us_max},
                           {"busbw_gbytes_per_s", bus}});
  }
  if (settings.json_path.empty()) return;
  out["contender"] = identity.contender;
  out["library"] = identity.library;
  out["transport"] = identity.transport;
  out["setting"] = identity.setting;
  out["memory"] = settings.memory;
  out["collective"] = name_of(settings.collective) + " float32";
  out["mode"] = mode;
  out["ranks"] = settings.ranks;
  out["cores"] = cores;
  out["cpu"] = cpu;
  std::ofstream file(settings.json_path);
  file << out.dump(2) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + settings.json_path);
}

int bench_main(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  try {
    app.parse(argc, argv);
    return body();
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace pith_bench
