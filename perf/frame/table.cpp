#include "frame/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

namespace pith_perf {
namespace {

// The columns' names or units: those of a line's beginning, then twice those of a half.
std::string column_line(const std::array<std::string_view, 5>& first,
                        std::span<const std::string> half, std::string_view stamp) {
  std::string text = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", first[0], first[1],
                                 first[2], first[3], first[4]);
  for (int halves = 0; halves < 2; ++halves) {
    for (std::size_t i = 0; i < half.size(); ++i) {
      text += fmt::format("  {:>{}}", half[i], i >= 1 && i <= 3 ? 6 : 7);
    }
  }
  return text + fmt::format(" {:>{}}\n", stamp, stamp.empty() ? 0 : 19);
}

std::string compression_columns(const Compressed& what) {
  const auto error = [](const std::optional<double>& value) {
    return value ? fmt::format("{:7.1e}", *value) : "    N/A";
  };
  return fmt::format("  {:7.5f}  {}  {}  {}  {}", what.density,
                     what.wire_bytes < 1e7 ? fmt::format("{:7.0f}", what.wire_bytes)
                                           : fmt::format("{:7.1e}", what.wire_bytes),
                     number(what.ratio, 7), error(what.largest_error), error(what.rms_error));
}

}  // namespace

std::string number(double value, int width) {
  for (const int decimals : {2, 1, 0}) {
    std::string text = fmt::format("{:{}.{}f}", value, width, decimals);
    if (text.size() <= static_cast<std::size_t>(width)) return text;
  }
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string heading(const Options& options, std::string_view program, int version) {
  const bool factor = options.step_factor > 1;
  std::string text = fmt::format(
      "# nccl-tests version pith-{}.{}.{} nccl-headers={} nccl-library={}\n"
      "# Collective test starting: {}\n"
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
      "iters: {} validation: {} graph: 0 unalign: {}\n",
      PITH_MAJOR, PITH_MINOR, PITH_PATCH, PITH_VERSION_CODE, version, program, options.threads,
      options.ranks_per_thread, options.min_bytes, options.max_bytes,
      factor ? options.step_factor : options.step_bytes, factor ? "factor" : "bytes",
      options.warmup_iters, options.iters, options.agg_iters, options.check_iters, options.unalign);
  switch (options.blocking) {
    case Blocking::none:
      break;
    case Blocking::barrier:
      text += "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n";
      break;
    case Blocking::wait:
      text += "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n";
      break;
    case Blocking::barrier_apart:
      text +=
          "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes "
          "barrier \n";
      break;
  }
  if (options.per_iter_timing) {
    text += "# Per-Iteration Report: i_* uses max over threads";
    if (options.per_iter_skip > 0) {
      text += fmt::format("; summary skips first {} iterations", options.per_iter_skip);
    }
    text += " \n";
  }
  if (options.parallel_init) text += "# Parallel Init Enabled: threads join concurrently \n";
  if (!options.compress.empty()) {
    text += fmt::format("# Compressor: {}; gradients: {}\n", options.compress,
                        options.data_folder.empty() ? "made up" : options.data_folder);
  }
  return text + fmt::format("# Memory: host, {}; transport: {}; algorithm: {}\n#\n",
                            options.registered ? "registered" : "private",
                            options.transport.empty() ? "own choice" : options.transport,
                            options.algo.empty() ? "own choice" : options.algo);
}

std::string rank_lines(std::span<const RankInfo> ranks) {
  std::string text = "# Using devices\n";
  for (const RankInfo& info : ranks) {
    text += fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [0000:00:00] {}\n",
                        info.rank, 0, info.process_id, info.host, info.core, info.cpu);
  }
  return text;
}

std::string column_names(const Options& options) {
  const bool stamps = options.report_timestamps;
  const std::string time = options.report_cputime ? "cputime" : "time";
  std::vector<std::string> names = {time, "algbw", "busbw", "#wrong"};
  std::vector<std::string> units = {"(us)", "(GB/s)", "(GB/s)", ""};
  std::string heads = "           out-of-place                       in-place          ";
  if (!options.compress.empty()) {
    names.insert(names.end(), {"density", "wire", "ratio", "maxerr", "rmserr"});
    units.insert(units.end(), {"", "(B)", "", "", ""});
    heads = "                           out-of-place" + std::string(51, ' ') + "in-place";
  }
  if (options.per_iter_timing) {
    names.insert(names.end(), {"i_min", "i_max", "i_p99", "i_cv%"});
    units.insert(units.end(), {"(us)", "(us)", "(us)", "(%)"});
    heads =
        "              out-of-place (+ per-iteration)                                in-place (+ "
        "per-iteration)";
  }
  return fmt::format("#\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}\n", "", "", "", "", "", heads) +
         column_line({"size", "count", "type", "redop", "root"}, names, stamps ? "timestamp" : "") +
         column_line({"(B)", "(elements)", "", "", ""}, units, stamps ? "%Y-%m-%d %H:%M:%S" : "");
}

std::string beginning(const Line& line) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", line.bytes, line.count, line.type, line.op,
                     line.root);
}

std::string half(const Measured& measured) {
  const std::string wrong =
      measured.wrong ? fmt::format("{:6g}", static_cast<double>(*measured.wrong)) : "   N/A";
  std::string text = fmt::format("  {}  {}  {}  {}", number(measured.time_us, 7),
                                 number(measured.algorithm_bandwidth, 6),
                                 number(measured.bus_bandwidth, 6), wrong);
  if (measured.compressed) text += compression_columns(*measured.compressed);
  if (!measured.iterations) return text;
  const IterationTimes& times = *measured.iterations;
  for (const double value : {times.min, times.max, times.p99, times.deviation_percent()}) {
    text += "  " + number(value, 7);
  }
  return text;
}

std::string how_it_went(const Ways& ways) {
  const std::string compressed =
      fmt::format("compressed by {}", fmt::join(ways.compressed_by, " and "));
  const std::string dense = fmt::format("sent dense by {}", fmt::join(ways.dense_by, " and "));
  if (ways.bypassed == 0) return compressed;
  if (ways.bypassed == ways.calls) return "bypassed, " + dense;
  return fmt::format("bypassed {} of {}, {}; the others {}", ways.bypassed, ways.calls, dense,
                     compressed);
}

std::string resource_lines(std::span<const Usage> usage, int ranks) {
  if (usage.empty()) return {};
  const auto text_of = [](double value) {
    return value < 0 ? std::string("N/A") : fmt::format("{:.2f}", value);
  };
  std::string text = fmt::format("# {:>10}  {:>6}  {:>12}  {:>12}  {:>12}  {:>12}\n", "size",
                                 "rank", "allocations", "syscalls", "waiting", "scratch");
  text += fmt::format("# {:>10}  {:>6}  {:>12}  {:>12}  {:>12}  {:>12}\n", "(B)", "", "(a call)",
                      "(a call)", "(a call)", "(B)");
  for (std::size_t i = 0; i < usage.size(); ++i) {
    const Usage& line = usage[i];
    text += fmt::format("# {:10}  {:6}  {:>12}  {:>12}  {:>12}  {:>12}\n", line.bytes,
                        i % static_cast<std::size_t>(ranks), text_of(line.allocations),
                        text_of(line.system_calls), text_of(line.waiting_calls),
                        line.scratch_bytes < 0 ? "N/A" : std::to_string(line.scratch_bytes));
  }
  return text;
}

std::string footer(const Summary& summary, std::string_view program) {
  const char* const fast = summary.fast_enough() ? "OK" : "FAILED";
  return fmt::format(
      "# {:<20} : {} {}\n# {:<20} : {:g} {}\n#\n# Collective test concluded: {}\n#\n",
      "Out of bounds values", summary.out_of_bounds, summary.out_of_bounds > 0 ? "FAILED" : "OK",
      "Avg bus bandwidth", summary.bus_bandwidth, summary.min_bandwidth < 0 ? "" : fast, program);
}

}  // namespace pith_perf
