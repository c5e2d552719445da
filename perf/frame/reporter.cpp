#include "frame/reporter.hpp"

#include <fmt/format.h>
#include <pith/pith.h>

#include <utility>

#include "frame/json_file.hpp"
#include "frame/table.hpp"
#include "frame/team.hpp"
#include "frame/watchdog.hpp"

namespace pith_perf {
namespace {

// Flushed, so that readers see each line immediately.
void print(const std::string& text) {
  Watchdog::line_is_open(!text.ends_with('\n'));
  fmt::print("{}", text);
  std::fflush(stdout);
}

}  // namespace

Reporter::Reporter(const Options& options, std::string_view program,
                   std::span<const char* const> arguments)
    : options_(options), program_(program) {
  must(pithGetVersion(&version_), "pithGetVersion");
  if (options.json_path.empty()) return;
  json_ = std::make_unique<JsonFile>(options.json_path, arguments, version_);
  print(fmt::format("# Writing JSON output to {}\n", json_->path()));
}

Reporter::~Reporter() = default;

void Reporter::start(std::span<const RankInfo> ranks, const std::string& algorithms) {
  ranks_ = static_cast<int>(ranks.size());
  print(heading(options_, program_, version_) + rank_lines(ranks) + algorithms +
        column_names(options_));
  if (json_) json_->configuration(options_, ranks);
}

void Reporter::begin(const Line& line) {
  row(beginning(line));
  if (json_) json_->begin(line);
}

void Reporter::half(const Measured& measured, bool in_place) {
  row(pith_perf::half(measured));
  if (measured.compressed) ways_.add(measured.compressed->ways);
  if (json_) json_->half(measured, in_place, options_.report_cputime);
}

// With --compress a row is printed at its end, when it is known how its calls were made.
void Reporter::row(const std::string& part) {
  if (options_.compress.empty()) return print(part);
  row_ += part;
}

void Reporter::end() {
  if (ways_.calls > 0) {
    const std::string how = how_it_went(std::exchange(ways_, {}));
    if (how != how_) print(fmt::format("# from this size on: {}\n", how));
    how_ = how;
  }
  row(options_.report_timestamps ? fmt::format("{:>21}\n", time_stamp()) : "\n");
  if (!row_.empty()) print(std::exchange(row_, {}));
  if (json_) json_->end(options_.iters);
}

void Reporter::finish(const Summary& summary, std::span<const Usage> usage) {
  print(resource_lines(usage, ranks_) + footer(summary, program_) + '\n');
  if (!json_) return;
  json_->resources(usage, ranks_);
  json_->finish(summary);
}

}  // namespace pith_perf
