// Prints the table and fills the JSON file from the same records. Owned by rank 0's thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "frame/options.hpp"
#include "frame/report.hpp"
#include "frame/resources.hpp"

namespace pith_perf {

class JsonFile;

class Reporter {
 public:
  Reporter(const Options& options, std::string_view program,
           std::span<const char* const> arguments);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // `algorithms`: comments for the head.
  void start(std::span<const RankInfo> ranks, const std::string& algorithms);
  void begin(const Line& line);
  void half(const Measured& measured, bool in_place);
  void end();
  // `usage`: ordered by rank, then by line; empty without --resources.
  void finish(const Summary& summary, std::span<const Usage> usage);

 private:
  void row(const std::string& part);

  const Options& options_;
  std::string_view program_;
  int version_ = 0;
  int ranks_ = 0;
  std::string how_;                 // how compressed calls were made, as last printed
  Ways ways_;                       // of the row's calls
  std::string row_;                 // the row's text so far
  std::unique_ptr<JsonFile> json_;  // null without --output_file
};

}  // namespace pith_perf
