#include "frame/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>

#include "compress/spec.hpp"
#include "frame/data.hpp"

namespace pith_perf {
namespace {

constexpr int any = std::numeric_limits<int>::max();
constexpr int ranks_most = 1024;

[[noreturn]] void refuse(const char* flag, const std::string& value, const std::string& expected) {
  throw CLI::ValidationError(flag, fmt::format("'{}' is given, expected {}", value, expected));
}

std::size_t size_of_flag(const char* flag, const std::string& text) {
  const std::optional<std::size_t> bytes = parse_size(text);
  if (!bytes) refuse(flag, text, "bytes, or a number with K, M or G");
  return *bytes;
}

template <class Value, class Names>
std::vector<Value> named(const char* flag, const std::string& text, const Names& names) {
  std::vector<Value> found;
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i] || text == "all") found.push_back(static_cast<Value>(i));
    known += fmt::format("{}, ", names[i]);
  }
  if (found.empty()) refuse(flag, text, "one of " + known + "all");
  return found;
}

int root_of(const std::string& text) {
  if (text == "all" || text == "-1") return -1;
  int root = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), root);
  if (status != std::errc() || end != text.data() + text.size() || root < 0) {
    refuse("--root", text, "a rank, or all");
  }
  return root;
}

std::string only_zero(const std::string& value) {
  if (value == "0") return {};
  return fmt::format("{} is given, expected 0: it needs CUDA memory, not available in this version",
                     value);
}

std::string json_name(const std::string& path) {
  if (path.ends_with(".json")) return {};
  return fmt::format("'{}' is given, expected a name that ends in .json", path);
}

void add_sizes(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("-b,--minbytes", raw.min_bytes, "smallest size in bytes; K, M and G are binary")
      ->capture_default_str();
  app.add_option("-e,--maxbytes", raw.max_bytes, "largest size")->capture_default_str();
  app.add_option("-i,--stepbytes", raw.step_bytes, "from one size to the next, added")
      ->capture_default_str();
  app.add_option("-f,--stepfactor", options.step_factor, "the same, as a factor; 1: off")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("-u,--unalign", options.unalign, "index of the buffers' first element")
      ->check(CLI::Range(0, 4096));
}

void add_timing(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("-n,--iters", options.iters, "timed calls a size")
      ->check(CLI::Range(1, any))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", options.warmup_iters, "calls before the timing")
      ->check(CLI::Range(0, any))
      ->capture_default_str();
  app.add_option("-m,--agg_iters", options.agg_iters, "calls in a group")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("-N,--run_cycles", options.cycles,
                 "how often to go through the sizes; 0: for ever")
      ->check(CLI::Range(0, any))
      ->capture_default_str();
  app.add_option("-a,--average", raw.average, "whose time: 0 rank 0's, 1 mean, 2 least, 3 largest")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("-z,--blocking", raw.blocking,
                 "1 barrier after each call, 2 none, 3 barrier after each group, not timed")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("-C,--report_cputime", options.report_cputime, "report the time of the calls");
  app.add_option("-S,--report_timestamps", options.report_timestamps, "end lines with the time");
  app.add_option("-I,--per_iter_timing", options.per_iter_timing,
                 "also report the times of single iterations");
  app.add_option("-K,--per_iter_skip", options.per_iter_skip, "iterations that -I leaves out first")
      ->check(CLI::Range(0, any));
  app.add_option("-T,--timeout", options.timeout_s,
                 "seconds that a measurement may take, or the run ends; 0: off")
      ->check(CLI::Range(0, any));
  app.add_option("--min_bw", options.min_bandwidth, "GB/s below 90 % of which the run has failed")
      ->envname("NCCL_TESTS_MIN_BW");
}

void add_calls(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("-o,--op", raw.op,
                 "sum, prod, max, min, avg, mulsum; of integers also band, bor, bxor, land, lor, "
                 "lxor; or all")
      ->capture_default_str();
  app.add_option("-d,--datatype", raw.type, "int8, ..., float, ..., or all")->capture_default_str();
  app.add_option("-r,--root", raw.root, "a rank, or all")->capture_default_str();
  app.add_option("-c,--check", options.check_iters, "checked calls a size; 0: no check")
      ->check(CLI::Range(0, any))
      ->capture_default_str();
  app.add_option("-J,--output_file", options.json_path, "also write the results to this .json file")
      ->check(json_name);
}

void add_ranks(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("--ranks", options.ranks, "local processes to start as ranks")
      ->check(CLI::Range(1, ranks_most));
  app.add_option("-t,--nthreads", options.threads, "threads a process")
      ->check(CLI::Range(1, ranks_most))
      ->capture_default_str();
  app.add_option("-g,--ngpus", options.ranks_per_thread, "ranks a thread, driven in groups")
      ->check(CLI::Range(1, ranks_most))
      ->capture_default_str();
  app.add_option("-p,--parallel_init", options.parallel_init,
                 "each thread makes its own communicators");
  app.add_option("--memory", raw.memory, "private, or registered: from pithMemAlloc")
      ->check(CLI::IsMember({"private", "registered"}))
      ->capture_default_str();
  app.add_option("-R,--local_register", raw.local_register, "1, 2: as --memory registered")
      ->check(CLI::Range(0, 2));
  app.add_option(
      "--algo", options.algo,
      "algorithm, as PITH_ALGO takes it; a name alone is of this collective; list: print "
      "them");
  app.add_option("--transport", options.transport, "as PITH_TRANSPORT takes it; list: print them");
  app.add_flag("--resources", options.resources,
               "also report allocations, system calls and scratch memory of each rank");
  app.add_option("--compress", options.compress,
                 "time compressed calls: a specification as topk:density=0.01, with bypass=never "
                 "unless it says bypass=auto (all_reduce_perf); in all_gather_perf, alltoall_perf, "
                 "broadcast_perf and reduce_scatter_perf one that codes values, as int8");
  app.add_option("--data", options.data_folder,
                 "with --compress: folder of raw *.f32 and *.f16 gradients");
}

// nccl-tests' device flags, accepted so that its command lines work here.
void add_device_flags(CLI::App& app, RawOptions& raw) {
  app.add_option("-y,--stream_null", raw.unused, "no effect on host memory");
  app.add_option("-x,--cta_policy", raw.unused, "no effect on host memory");
  app.add_option("-V,--device_cta_count", raw.unused, "no effect on host memory");
  app.add_option("-G,--cudagraph", raw.unused, "only 0")->check(only_zero);
  app.add_option("-D,--device_implementation", raw.unused, "only 0")->check(only_zero);
  app.add_option("-M", raw.unused, "only 0")->check(only_zero);
}

// Refuses unsupported combinations with --compress before any rank starts.
void check_compression(const Options& options) {
  if (options.compress.empty()) {
    if (!options.data_folder.empty()) refuse("--data", options.data_folder, "--compress with it");
    return;
  }
  const pith::Expected<pith::Spec> spec = pith::Spec::parse(options.compress);
  if (!spec) throw CLI::ValidationError("--compress", spec.error().message());
  for (const pithDataType_t type : options.types) {
    if (type == pithFloat32 || type == pithFloat16 || type == pithBfloat16) continue;
    refuse("--datatype", std::string(type_names[type]), "float, half or bfloat16 with --compress");
  }
  for (const pithRedOp_t op : options.ops) {
    if (op == pithSum || op == pithAvg) continue;
    refuse("--op", std::string(op_names[op]), "sum or avg with --compress");
  }
  if (options.agg_iters != 1) {
    refuse("--agg_iters", std::to_string(options.agg_iters), "1 with --compress");
  }
  if (options.unalign != 0) {
    refuse("--unalign", std::to_string(options.unalign), "0 with --compress");
  }
  if (options.resources) refuse("--resources", "it", "no --compress with it");
}

// Of several operations or types those run that go together.
void check_defined(const Options& options) {
  const pithRedOp_t op = options.ops.front();
  const pithDataType_t type = options.types.front();
  const bool is_one = options.ops.size() == 1 && options.types.size() == 1;
  if (!is_one || is_defined(op, type)) return;
  refuse("--op", std::string(op_names[op]),
         fmt::format("an integer --datatype with it, not {}", type_names[type]));
}

}  // namespace

std::optional<std::size_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number >= 0)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  int shift = 0;
  if (!unit.empty() && unit != "B") {
    const std::size_t letter = std::string_view("kmg").find(static_cast<char>(unit[0] | 0x20));
    if (letter == std::string_view::npos) return std::nullopt;
    shift = 10 * (static_cast<int>(letter) + 1);
    unit.remove_prefix(1);
  }
  if (!unit.empty() && unit != "B" && unit != "iB") return std::nullopt;
  const double bytes = std::ldexp(number, shift);
  if (bytes >= std::ldexp(1.0, 53)) return std::nullopt;
  return static_cast<std::size_t>(bytes);
}

void add_options(CLI::App& app, Options& options, RawOptions& raw) {
  add_ranks(app, options, raw);
  add_sizes(app, options, raw);
  add_timing(app, options, raw);
  add_calls(app, options, raw);
  add_device_flags(app, raw);
}

void finish_options(Options& options, const RawOptions& raw) {
  options.min_bytes = size_of_flag("--minbytes", raw.min_bytes);
  options.max_bytes = size_of_flag("--maxbytes", raw.max_bytes);
  options.step_bytes = size_of_flag("--stepbytes", raw.step_bytes);
  if (options.min_bytes > options.max_bytes) {
    refuse("--minbytes", raw.min_bytes, fmt::format("at most --maxbytes, {}", raw.max_bytes));
  }
  const bool moves = options.step_factor > 1 ? options.min_bytes > 0 : options.step_bytes > 0;
  if (!moves && options.min_bytes < options.max_bytes) {
    refuse(options.step_factor > 1 ? "--minbytes" : "--stepbytes", "0",
           "more, or the sizes never come to --maxbytes");
  }
  if (options.per_iter_skip >= options.iters) {
    refuse("--per_iter_skip", std::to_string(options.per_iter_skip),
           fmt::format("less than --iters, {}", options.iters));
  }
  options.ops = named<pithRedOp_t>("--op", raw.op, op_names);
  options.types = named<pithDataType_t>("--datatype", raw.type, type_names);
  check_defined(options);
  options.root = root_of(raw.root);
  options.average = static_cast<Average>(raw.average);
  options.blocking = static_cast<Blocking>(raw.blocking);
  options.registered = raw.memory == "registered" || raw.local_register != 0;
  if (options.resources && options.threads > 1) {
    refuse("--nthreads", std::to_string(options.threads),
           "1 with --resources: a process is a rank");
  }
  const std::size_t all = std::size_t{1} * static_cast<std::size_t>(options.threads) *
                          static_cast<std::size_t>(options.ranks_per_thread) *
                          static_cast<std::size_t>(std::max(options.ranks, 1));
  if (all > ranks_most) {
    refuse("--ranks", std::to_string(all), fmt::format("at most {} with -t and -g", ranks_most));
  }
  check_compression(options);
}

}  // namespace pith_perf
