// The command line of the perf programs: nccl-tests' flags and Pith's own.
#pragma once

#include <pith/pith.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// CLI11 and nlohmann's JSON take seconds to compile: only who reads command lines or writes JSON
// includes them.
namespace CLI {
class App;
}

namespace pith_perf {

// Whose time is reported.
enum class Average { rank0, mean, min, max };
// What follows each call (barrier, wait), or each group of calls (barrier_apart: not timed).
enum class Blocking { none, barrier, wait, barrier_apart };

struct Options {
  int ranks = 0;  // local processes to start; 0: this process is one, by a launcher or alone
  int threads = 1;
  int ranks_per_thread = 1;
  std::size_t min_bytes = std::size_t{32} << 20;
  std::size_t max_bytes = std::size_t{32} << 20;
  std::size_t step_bytes = std::size_t{1} << 20;
  std::size_t step_factor = 1;  // if above 1, replaces step_bytes
  int iters = 20;
  int warmup_iters = 1;
  int agg_iters = 1;
  int cycles = 1;  // 0: infinite
  int check_iters = 1;
  int root = 0;  // -1: each in turn
  Average average = Average::mean;
  Blocking blocking = Blocking::none;
  std::vector<pithRedOp_t> ops;
  std::vector<pithDataType_t> types;
  bool parallel_init = false;
  bool report_cputime = false;
  bool report_timestamps = false;
  int timeout_s = 0;  // 0: none
  int unalign = 0;    // in elements
  std::string json_path;
  double min_bandwidth = -1;  // GB/s; negative: not checked
  bool registered = false;
  bool resources = false;
  bool per_iter_timing = false;
  int per_iter_skip = 0;
  std::string algo;
  std::string transport;
  std::string compress;     // a compressor's specification; empty: dense
  std::string data_folder;  // of gradients to compress; empty: synthetic

  std::size_t after(std::size_t size) const {
    return step_factor > 1 ? size * step_factor : size + std::max<std::size_t>(step_bytes, 1);
  }
};

// The flags' values before parsing.
struct RawOptions {
  std::string min_bytes = "32M";
  std::string max_bytes = "32M";
  std::string step_bytes = "1M";
  std::string op = "sum";
  std::string type = "float";
  std::string root = "0";
  std::string memory = "private";
  int average = 1;
  int blocking = 0;
  int local_register = 0;
  int unused = 0;  // flags without effect on host memory
};

// Bytes of "8", "64K", "1.5M", "1G" (binary; B or iB may follow); empty if invalid.
std::optional<std::size_t> parse_size(std::string_view text);

void add_options(CLI::App& app, Options& options, RawOptions& raw);
// Converts the values in `raw`. Throws CLI::ValidationError with the flag and its value.
void finish_options(Options& options, const RawOptions& raw);

}  // namespace pith_perf
