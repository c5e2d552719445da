// The JSON file in nccl-tests' format (version 3).
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "frame/options.hpp"
#include "frame/report.hpp"
#include "frame/resources.hpp"

namespace pith_perf {

class JsonFile {
 public:
  // Creates the file; if the name exists, .0, .1, ... is appended. Throws std::runtime_error on
  // failure.
  JsonFile(const std::string& path, std::span<const char* const> arguments, int version);

  const std::string& path() const { return path_; }
  void configuration(const Options& options, std::span<const RankInfo> ranks);
  void begin(const Line& line);
  void half(const Measured& measured, bool in_place, bool cputime);
  void end(int iters);
  // Ordered by rank, then by line.
  void resources(std::span<const Usage> usage, int ranks);
  // Writes everything. Throws std::runtime_error on failure.
  void finish(const Summary& summary);

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  using Json = nlohmann::ordered_json;

  static void compression(const Compressed& what, Json& body);
  void iterations(const IterationTimes& times, bool in_place);

  std::string path_;
  File file_;
  Json document_;
  Json results_ = Json::array();
  Json line_;
  Json resources_;
};

}  // namespace pith_perf
