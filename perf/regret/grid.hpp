// Replays the cells of one group of ranks within its time.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "frame/team.hpp"
#include "model/model.hpp"
#include "regret/calls.hpp"
#include "regret/replay.hpp"

namespace pith_perf {

struct GridOptions {
  std::vector<std::string> collectives;
  std::vector<std::size_t> sizes;  // ascending
  std::vector<double> densities;   // ascending
  std::vector<std::string> settings;
  bool registered = false;
  bool views = false;        // ranks reach each other's memory; only for costs
  std::vector<double> link;  // alpha and beta of the link as it was laid; empty: not told
  double seconds = 60;
  ReplayLimits limits;
};

// Small sizes first: what they leave of their time is for the others.
std::vector<Cell> cells_of(const GridOptions& options);

class Grid {
 public:
  using Record = nlohmann::ordered_json;

  Grid(const GridOptions& options, Calls& calls, const Team& control);
  // `told` gets each cell's record, on all ranks.
  void run(const std::function<void(const Record&)>& told);

 private:
  Record replay(const Cell& cell, double left_s, double share_s);
  Record candidate(const Cell& cell, const Calls::Contestant& contestant, const Duration& duration);
  bool is_hopeless(const Cell& cell) const;
  void remember(const Cell& cell, const Replayed& replayed);

  const GridOptions& options_;
  Calls& calls_;
  const Team& control_;
  Replay replay_;
  pith::Model nominal_;
  // Bytes and seconds of the best, of the cells that differ by size alone.
  std::map<std::pair<std::string, double>, std::vector<std::pair<double, double>>> seen_;
};

}  // namespace pith_perf
