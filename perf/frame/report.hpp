// What a run reports: the records that the table prints and the JSON file holds.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frame/iterations.hpp"

namespace pith_perf {

// One rank, as the table and the file name it. Crosses ranks as bytes.
struct RankInfo {
  int rank;
  int process_id;
  int core;  // where it runs
  char host[64];
  char cpu[96];
};

// A line of the table: one size, type, operation and root.
struct Line {
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string_view type;
  std::string_view op;
  int root = -1;
  std::string algorithm = {};  // empty: unknown, or the halves tell
};

// How compressed calls went.
struct Ways {
  int calls = 0;
  int bypassed = 0;                     // of them: dense
  std::set<std::string> compressed_by;  // algorithms
  std::set<std::string> dense_by;       // of the bypassed

  void add(const Ways& more);
};

// What --compress adds to a half: means over calls and ranks.
struct Compressed {
  double density = 0;     // distinct elements that moved / all
  double wire_bytes = 0;  // sent by a rank in a call
  double ratio = 0;       // what a dense ring sends in float32 / wire_bytes
  double select_us = 0;   // as the library tells; 0 where it does not
  double exchange_us = 0;
  Ways ways;
  std::optional<double> largest_error;  // against what was expected; nothing: not checked
  std::optional<double> rms_error;
};

// Its half: out of place or in place.
struct Measured {
  double time_us = 0;
  double algorithm_bandwidth = 0;  // GB/s, as the next
  double bus_bandwidth = 0;
  std::optional<std::int64_t> wrong;  // elements; nothing: not checked
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
