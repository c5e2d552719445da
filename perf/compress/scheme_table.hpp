// Times whole compressed all-reduces, scheme by scheme, beside dense ones of as many float32.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perf/compress/vectors.hpp"

namespace pith_bench {

// All that this build has, in the order of the library's table.
std::vector<std::string> scheme_names();

struct SchemeTime {
  std::string spec;       // with all its keys
  std::string algorithm;  // of the last call
  double seconds;         // of a call on the slower rank, median
  double dense_seconds;   // likewise, of pithAllReduce
  // Share of the call. Not told of schemes without an election, whose coding counts as exchange.
  std::optional<double> compressing;
  double bits;  // that a rank sends for an element of the vector
};

// The ranks are threads of this process, each on a core of its own if there are two.
class SchemeTable {
 public:
  static constexpr int ranks = 2;
  using Matrix = std::pair<std::size_t, std::size_t>;  // rows, columns

  // Values are made by fill(); the vector consists of such matrices. Rank r runs on core + r.
  SchemeTable(std::size_t count, Matrix matrix, int core, const std::string& distribution,
              const std::string& data_path);

  // bypass=never unless the spec says otherwise. Throws std::runtime_error.
  SchemeTime time(const std::string& spec, int rounds);

 private:
  SchemeTime time_rank(const std::string& spec, int rounds, const pithUniqueId& id, int rank) const;
  void state_shape(pithCompressor_t compressor) const;

  std::size_t count_;
  Matrix matrix_;
  int core_;
  Pages<float> gradients_[ranks];
  Pages<float> results_[ranks];
};

}  // namespace pith_bench
