// The records of a run, as printed in the table and written to the JSON file.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frame/iterations.hpp"

namespace pith_perf {

// A rank's description. Sent between ranks as bytes.
struct RankInfo {
  int rank;
  int process_id;
  int core;  // where it runs
  char host[64];
  char cpu[96];
};

// A table line: one size, type, operation and root.
struct Line {
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string_view type;
  std::string_view op;
  int root = -1;
  std::string algorithm = {};  // empty: unknown, or told by the halves
};

// How compressed calls were made.
struct Ways {
  int calls = 0;
  int bypassed = 0;                     // of these: dense
  std::set<std::string> compressed_by;  // algorithms
  std::set<std::string> dense_by;       // algorithms of the bypassed ones

  void add(const Ways& more);
};

// Additional results with --compress: means over calls and ranks.
struct Compressed {
  double density = 0;     // distinct elements sent / all
  double wire_bytes = 0;  // sent by a rank per call
  double ratio = 0;       // bytes that a dense float32 ring sends / wire_bytes
  double select_us = 0;   // as reported by the library; 0 if not reported
  double exchange_us = 0;
  double predicted_us = 0;  // of the whole call
  Ways ways;
  std::optional<double> largest_error;  // against the expected value; empty: not checked
  std::optional<double> rms_error;
};

// A line's half: out of place or in place.
struct Measured {
  double time_us = 0;
  double algorithm_bandwidth = 0;  // GB/s, as the next one
  double bus_bandwidth = 0;
  std::optional<std::int64_t> wrong;  // elements; empty: not checked
  std::optional<IterationTimes> iterations = std::nullopt;
  std::optional<Compressed> compressed = std::nullopt;
};

struct Summary {
  std::int64_t out_of_bounds = 0;
  double bus_bandwidth = 0;  // mean over lines and halves
  double min_bandwidth = -1;
  bool fast_enough() const { return min_bandwidth < 0 || bus_bandwidth >= 0.9 * min_bandwidth; }
};

// "YYYY-mm-dd HH:MM:SS", local time.
std::string time_stamp();

}  // namespace pith_perf
