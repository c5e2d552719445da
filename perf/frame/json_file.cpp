#include "frame/json_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace pith_perf {
namespace {

// Only variables that may explain a result: the rest of the environment may contain secrets, as
// does PITH_SECRET.
bool is_told(std::string_view variable) {
  constexpr std::array<std::string_view, 9> prefixes = {
      "PITH_",       "NCCL_",    "UCX_", "OMPI_", "PMI_", "SLURM_", "LD_LIBRARY_PATH=",
      "LD_PRELOAD=", "HOSTNAME="};
  if (variable.starts_with("PITH_SECRET")) return false;
  for (const std::string_view prefix : prefixes) {
    if (variable.starts_with(prefix)) return true;
  }
  return false;
}

// As nccl-tests, which writes booleans as text.
const char* text_of(bool value) { return value ? "true" : "false"; }

nlohmann::ordered_json number_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return "inf";
  return value;
}

}  // namespace

JsonFile::JsonFile(const std::string& path, std::span<const char* const> arguments, int version)
    : path_(path), file_(std::fopen(path.c_str(), "wx"), std::fclose) {
  for (int number = 0; !file_ && errno == EEXIST; ++number) {
    path_ = fmt::format("{}.{}", path, number);
    file_.reset(std::fopen(path_.c_str(), "wx"));
  }
  if (!file_) {
    throw std::runtime_error(fmt::format("--output_file {}: {}", path_, std::strerror(errno)));
  }
  document_["version"] = 3;
  document_["start_time"] = time_stamp();
  document_["args"] = Json::array();
  for (const char* argument : arguments) document_["args"].push_back(argument);
  document_["env"] = Json::array();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (is_told(*variable)) document_["env"].push_back(*variable);
  }
  document_["nccl_version"] = version;
}

void JsonFile::configuration(const Options& options, std::span<const RankInfo> ranks) {
  Json& config = document_["config"];
  config["nthreads"] = options.threads;
  config["ngpus"] = options.ranks_per_thread;
  config["minimum_bytes"] = options.min_bytes;
  config["maximum_bytes"] = options.max_bytes;
  if (options.step_factor > 1) {
    config["step_factor"] = options.step_factor;
  } else {
    config["step_bytes"] = options.step_bytes;
  }
  config["warmup_iters"] = options.warmup_iters;
  config["iterations"] = options.iters;
  config["aggregated_iterations"] = options.agg_iters;
  config["validation"] = options.check_iters;
  config["graph"] = 0;
  config["blocking_collectives"] = text_of(options.blocking != Blocking::none);
  config["per_iter_timing"] = text_of(options.per_iter_timing);
  config["per_iter_skip"] = options.per_iter_skip;
  config["parallel_init"] = text_of(options.parallel_init);
  config["memory"] = options.registered ? "registered" : "private";
  config["algo"] = options.algo;
  config["transport"] = options.transport;
  if (!options.compress.empty()) {
    config["compress"] = options.compress;
    config["data"] = options.data_folder;
  }
  config["devices"] = Json::array();
  for (const RankInfo& info : ranks) {
    config["devices"].push_back({{"rank", info.rank},
                                 {"group", 0},
                                 {"pid", info.process_id},
                                 {"hostname", info.host},
                                 {"device", info.core},
                                 {"device_hex", "0000:00:00"},
                                 {"device_info", info.cpu}});
  }
}

void JsonFile::begin(const Line& line) {
  line_ = {{"size", line.bytes},
           {"count", line.count},
           {"type", line.type},
           {"redop", line.op},
           {"root", fmt::format("{:6}", line.root)}};
  if (!line.algorithm.empty()) line_["algorithm"] = line.algorithm;
}

void JsonFile::half(const Measured& measured, bool in_place, bool cputime) {
  Json& body = line_[in_place ? "in_place" : "out_of_place"];
  body[cputime ? "cpu_time" : "time"] = number_of(measured.time_us);
  body["alg_bw"] = number_of(measured.algorithm_bandwidth);
  body["bus_bw"] = number_of(measured.bus_bandwidth);
  body["nwrong"] = measured.wrong ? Json(static_cast<double>(*measured.wrong)) : Json();
  if (measured.compressed) compression(*measured.compressed, body);
  if (measured.iterations) iterations(*measured.iterations, in_place);
}

void JsonFile::compression(const Compressed& what, Json& body) {
  const auto known = [](const std::optional<double>& value) {
    return value ? number_of(*value) : Json();
  };
  const Ways& ways = what.ways;
  body["bypassed"] = ways.bypassed;
  body["algorithm"] = fmt::format("{}", fmt::join(ways.compressed_by, " and "));
  body["dense_algorithm"] = fmt::format("{}", fmt::join(ways.dense_by, " and "));
  body["density"] = number_of(what.density);
  body["wire_bytes"] = number_of(what.wire_bytes);
  body["ratio"] = number_of(what.ratio);
  body["select_us"] = number_of(what.select_us);
  body["exchange_us"] = number_of(what.exchange_us);
  body["predicted_us"] = number_of(what.predicted_us);
  body["max_error"] = known(what.largest_error);
  body["rms_error"] = known(what.rms_error);
}

void JsonFile::iterations(const IterationTimes& times, bool in_place) {
  Json& body = line_[in_place ? "in_place_per_iter" : "out_of_place_per_iter"];
  body["skipped_iterations"] = times.skipped;
  body["min_us"] = times.min;
  body["max_us"] = times.max;
  body["avg_us"] = times.mean;
  body["p50_us"] = times.p50;
  body["p95_us"] = times.p95;
  body["p99_us"] = times.p99;
  body["stdev_us"] = times.deviation;
  body["cv_pct"] = times.deviation_percent();
  body["times_us"] = times.each;
  if (times.threads.size() > 1) body["per_process_max_times_us"] = times.threads;
}

void JsonFile::end(int iters) {
  line_["actual_iterations"] = iters;
  line_["experiment_name"] = "";
  results_.push_back(line_);
}

void JsonFile::resources(std::span<const Usage> usage, int ranks) {
  const auto known = [](auto value) { return value < 0 ? Json() : Json(value); };
  for (std::size_t i = 0; i < usage.size(); ++i) {
    const Usage& line = usage[i];
    resources_.push_back({{"size", line.bytes},
                          {"rank", i % static_cast<std::size_t>(ranks)},
                          {"allocations_per_call", known(line.allocations)},
                          {"system_calls_per_call", known(line.system_calls)},
                          {"waiting_calls_per_call", known(line.waiting_calls)},
                          {"scratch_bytes", known(line.scratch_bytes)}});
  }
}

void JsonFile::finish(const Summary& summary) {
  document_["results"] = results_;
  document_["out_of_bounds"] = {{"count", summary.out_of_bounds},
                                {"okay", text_of(summary.out_of_bounds == 0)}};
  const char* const okay = summary.min_bandwidth < 0 ? "unchecked" : text_of(summary.fast_enough());
  document_["average_bus_bandwidth"] = {{"bandwidth", number_of(summary.bus_bandwidth)},
                                        {"okay", okay}};
  if (!resources_.empty()) document_["resources"] = resources_;
  document_["errors"] = Json::array();
  document_["end_time"] = time_stamp();
  const std::string text = document_.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    throw std::runtime_error("--output_file: cannot write " + path_);
  }
}

}  // namespace pith_perf
