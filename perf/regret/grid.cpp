#include "regret/grid.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compress/spec.hpp"
#include "machine.hpp"
#include "model/nominal.hpp"

namespace pith_perf {
namespace {

using pith_bench::seconds_now;
using Record = Grid::Record;

double microseconds(double seconds) { return seconds * 1e6; }

// Densities that elect as many elements as a smaller one are the same cell.
std::vector<Cell> sparse_cells(const GridOptions& options, std::size_t bytes) {
  std::vector<Cell> cells;
  std::size_t before = 0;
  for (const double density : options.densities) {
    const std::size_t elected = pith::elected_of(density, bytes / sizeof(float));
    if (elected != before) cells.push_back({std::string(sparse_name), bytes, density});
    before = elected;
  }
  return cells;
}

}  // namespace

std::vector<Cell> cells_of(const GridOptions& options) {
  std::vector<Cell> cells;
  for (const std::size_t bytes : options.sizes) {
    for (const std::string& collective : options.collectives) {
      if (collective != sparse_name) {
        cells.push_back({collective, bytes, 0});
        continue;
      }
      for (Cell& cell : sparse_cells(options, bytes)) cells.push_back(std::move(cell));
    }
  }
  return cells;
}

Grid::Grid(const GridOptions& options, Calls& calls, const Team& control)
    : options_(options),
      calls_(calls),
      control_(control),
      replay_(options.limits, control),
      nominal_(control.ranks()) {
  nominal_.set_views(options.views);
}

// Whether the line through the last two sizes says that the best takes far too long.
bool Grid::is_hopeless(const Cell& cell) {
  constexpr double doubt = 1.5;
  const auto& best = line_of(cell).best;
  if (best.size() < 2) return false;
  const auto& [bytes_before, before] = best[best.size() - 2];
  const auto& [bytes_last, last] = best.back();
  const double slope = std::max(last - before, 0.0) / (bytes_last - bytes_before);
  const double expected = last + slope * (static_cast<double>(cell.bytes) - bytes_last);
  return expected > doubt * options_.limits.call_s;
}

// Whether there is time for so many calls that the rivals of a size have all been tried.
bool Grid::can_learn(const Cell& cell, double allowed_s) {
  constexpr double calls = 400;
  const auto& best = line_of(cell).best;
  return best.empty() || calls * best.back().second < allowed_s;
}

// The tries of a long call may take the time of whole cells.
double Grid::guess(const Cell& cell, const std::string& name) {
  constexpr double far = 8;
  constexpr double long_s = 0.01;
  const Line& line = line_of(cell);
  const auto found = line.last_s.find(name);
  if (found == line.last_s.end() || name.starts_with("default")) return 0;
  const auto& [bytes, best] = line.best.back();
  if (found->second < std::max(far * best, long_s)) return 0;
  return found->second * static_cast<double>(cell.bytes) / bytes;
}

void Grid::remember(const Cell& cell, const Record& record) {
  Line& line = line_of(cell);
  double best = options_.limits.call_s;
  line.last_s.clear();
  for (const Record& one : record["candidates"]) {
    const double seconds = one["us"].get<double>() / 1e6;
    line.last_s[one["name"]] = seconds;
    best = std::min(best, seconds);
  }
  line.best.emplace_back(static_cast<double>(cell.bytes), best);
}

Record Grid::candidate(const Cell& cell, const Calls::Contestant& contestant,
                       const Duration& duration) {
  Record record = {{"name", contestant.name},
                   {"us", microseconds(duration.median)},
                   {"us_min", microseconds(duration.least)},
                   {"us_max", microseconds(duration.most)},
                   {"rounds", duration.rounds}};
  if (contestant.algorithm == nullptr) return record;
  const pith::Shape shape = nominal_.shape(count_of(cell, control_.ranks()) * sizeof(float));
  const pith::LinkCost& link = options_.views ? pith::nominal::memory : pith::nominal::wire;
  record["costs"]["textbook"] = microseconds(contestant.algorithm->cost(shape, link));
  if (options_.link.size() == 2) {
    const pith::LinkCost laid = {options_.link[0], options_.link[1], link.gamma};
    record["costs"]["textbook-laid"] = microseconds(contestant.algorithm->cost(shape, laid));
  }
  return record;
}

Record Grid::replay(const Cell& cell, double left_s, double share_s) {
  // A cell with long calls takes from those after it, but not everything.
  constexpr double most_shares = 4;
  Record record = {
      {"collective", cell.collective}, {"bytes", cell.bytes}, {"ranks", control_.ranks()}};
  record["density"] = cell.density > 0 ? Record(cell.density) : Record(nullptr);
  if (left_s <= 0 || is_hopeless(cell)) {
    record["left_out"] = left_s <= 0 ? "no time" : "over the limit of a call";
    return record;
  }
  std::vector<Calls::Contestant> contestants = calls_.of(cell);
  const bool learn = can_learn(cell, share_s / 4);
  std::vector<Replay::Call> calls;
  std::vector<double> guesses;
  for (const Calls::Contestant& one : contestants) {
    guesses.push_back(guess(cell, one.name));
    if (guesses.back() == 0) calls.push_back(one.call);
  }
  const double begun = seconds_now();
  for (const Calls::Contestant& one : contestants) {
    if (learn && one.learns) replay_.let_learn(one.call, share_s / 4);
  }
  const double spent = control_.average(seconds_now() - begun, Average::rank0);
  const Replayed replayed =
      replay_.run(calls, share_s - spent, std::min(left_s, most_shares * share_s) - spent);
  record["candidates"] = Record::array();
  if (!replayed.left_out.empty()) {
    if (replayed.left_out != "no time") remember(cell, record);
    record.erase("candidates");
    record["left_out"] = replayed.left_out;
    return record;
  }
  record["chosen"] = calls_.chosen(cell);
  record["calls"] = replayed.calls;
  auto duration = replayed.durations.begin();
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const bool guessed = guesses[i] > 0;
    if (!guessed) calls_.check(cell, contestants[i]);
    const Duration took = guessed ? Duration{guesses[i], guesses[i], guesses[i], 0} : *duration++;
    record["candidates"].push_back(candidate(cell, contestants[i], took));
    if (guessed) record["candidates"].back()["guessed"] = true;
  }
  remember(cell, record);
  return record;
}

void Grid::run(const std::function<void(const Record&)>& told) {
  const std::vector<Cell> cells = cells_of(options_);
  const double end = seconds_now() + options_.seconds;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const double left = control_.average(end - seconds_now(), Average::rank0);
    told(replay(cells[i], left, left / static_cast<double>(cells.size() - i)));
  }
}

}  // namespace pith_perf
