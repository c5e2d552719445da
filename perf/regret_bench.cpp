// regret_bench: times the library's choice against everything it could have chosen, interleaved in
// one group of ranks. Writes a line of JSON per cell; regret.py lays the links and reads them.
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frame/rank_main.hpp"
#include "regret/grid.hpp"

namespace {

using namespace pith_perf;

struct Settings {
  int ranks = 0;
  std::string transport;
  std::string memory = "private";
  std::string out;
  double batch_ms = 2;
  GridOptions grid;
};

void add_options(CLI::App& app, Settings& settings) {
  GridOptions& grid = settings.grid;
  grid.collectives = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                      std::string(sparse_name)};
  grid.sizes = {8, 4096, 65536, 1 << 20};
  grid.densities = {0.001, 0.01, 0.1};
  const auto list = [&](const char* name, auto& value, const char* meaning) {
    app.add_option(name, value, meaning)->delimiter(',')->capture_default_str();
  };
  app.add_option("--ranks", settings.ranks, "processes to start here; 0: a launcher has started");
  app.add_option("--transport", settings.transport, "sets PITH_TRANSPORT")->required();
  app.add_option("--memory", settings.memory)->check(CLI::IsMember({"private", "registered"}));
  app.add_option("--out", settings.out, "lines of JSON, of rank 0")->required();
  list("--collectives", grid.collectives, "those to compare");
  list("--sizes", grid.sizes, "bytes of the vector, or of all blocks together");
  list("--densities", grid.densities, "of compressed calls");
  list("--settings", grid.settings, "further candidates, as streams=1,chunk=131072");
  list("--link", grid.link, "seconds per message and byte, for the textbook's choice");
  app.add_option("--seconds", grid.seconds, "for all cells");
  app.add_option("--call-limit", grid.limits.call_s, "seconds; slower cells are left out");
  app.add_option("--batch-ms", settings.batch_ms, "length of a batch of calls");
  app.add_option("--rounds-min", grid.limits.rounds_min)->check(CLI::PositiveNumber);
  app.add_option("--rounds-max", grid.limits.rounds_max)->check(CLI::PositiveNumber);
}

bool has_sparse(const GridOptions& options) {
  return std::find(options.collectives.begin(), options.collectives.end(), sparse_name) !=
         options.collectives.end();
}

void measure(const Settings& settings, const Start& start) {
  const GridOptions& options = settings.grid;
  const std::vector<Candidate> candidates = candidates_of(start.processes, options.settings);
  check_environment(candidates);
  Team control(join(start.id, start.process, 1, start.processes), start.process, start.processes);
  std::ofstream out;
  if (start.process == 0) out.open(settings.out);
  if (start.process == 0 && !out) throw std::runtime_error(settings.out + ": cannot be written");
  Calls calls(candidates, control, options.sizes.back(), options.registered, has_sparse(options));
  Grid(options, calls, control).run([&](const Grid::Record& record) {
    if (start.process == 0) out << record.dump() << std::endl;
  });
  calls.close();
  control.close();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("times the library's choices against its other candidates", "regret_bench");
  Settings settings;
  add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  GridOptions& grid = settings.grid;
  std::sort(grid.sizes.begin(), grid.sizes.end());
  std::sort(grid.densities.begin(), grid.densities.end());
  grid.registered = settings.memory == "registered";
  grid.views = settings.transport == "shm";
  grid.limits.batch_s = settings.batch_ms / 1e3;
  setenv("PITH_TRANSPORT", settings.transport.c_str(), 1);
  return run_ranks("regret_bench", settings.ranks, true,
                   [&](const Start& start) { measure(settings, start); });
}
