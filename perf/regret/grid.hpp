// Replays the cells of one group of ranks within its time.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
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
  // What was found in cells that differ by size alone.
  struct Line {
    std::vector<std::pair<double, double>> best;  // bytes and seconds
    std::map<std::string, double> last_s;         // at the last of these sizes, by candidate
  };

  Record replay(const Cell& cell, double left_s, double share_s);
  Record candidate(const Cell& cell, const Calls::Contestant& contestant, const Duration& duration);
  Line& line_of(const Cell& cell) { return lines_[{cell.collective, cell.density}]; }
  bool is_hopeless(const Cell& cell);
  bool can_learn(const Cell& cell, double allowed_s);
  // What a contestant that is far too slow would take, by the size before; 0: it is worth a try.
  double guess(const Cell& cell, const std::string& name);
  void remember(const Cell& cell, const Record& record);

  const GridOptions& options_;
  Calls& calls_;
  const Team& control_;
  Replay replay_;
  pith::Model nominal_;
  std::map<std::pair<std::string, double>, Line> lines_;  // by collective and density
};

}  // namespace pith_perf
