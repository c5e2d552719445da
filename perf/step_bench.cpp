// step_bench: a run of the same calls, in the middle of which the links change: the time of each,
// as JSON, from rank 0. Before the change it says "change" on its output and waits for a line on
// its input; step_lab.py lays the links meanwhile. A launcher starts the ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "frame/gradients.hpp"
#include "frame/meeting_point.hpp"
#include "frame/team.hpp"

namespace {

using namespace pith_perf;

struct Settings {
  std::string spec;  // of a compressor; empty: dense calls
  std::size_t bytes = 1 << 20;
  std::size_t before = 60;
  std::size_t after = 60;
  double between_ms = 0;
  std::string out;
};

struct CallTime {
  double begun_s;
  double ended_s;
  double gain;
  double density;
};

double seconds_now() { return static_cast<double>(pith::monotonic_ns()) * 1e-9; }

struct End {
  void operator()(pithCompressor_t compressor) const { pithCompressorDestroy(compressor); }
};

class Caller {
 public:
  Caller(const Settings& settings, const Team& team)
      : team_(team), count_(settings.bytes / sizeof(float)), send_(count_), recv_(count_) {
    std::vector<float> drawn(count_ + Gradients::slack());
    Gradients("").fill(drawn, team.first_rank());
    std::copy_n(drawn.begin(), count_, send_.begin());
    pithCompressor_t made = nullptr;
    if (!settings.spec.empty()) {
      must(pithCompressorCreate(&made, settings.spec.c_str()), "pithCompressorCreate");
    }
    compressor_.reset(made);
  }

  CallTime call() {
    const double begun = seconds_now();
    if (!compressor_) {
      must(pithAllReduce(send_.data(), recv_.data(), count_, pithFloat32, pithSum, team_.comm(0),
                         nullptr),
           "pithAllReduce");
      return {begun, seconds_now(), 1, 1};
    }
    must(pithAllReduceCompressed(send_.data(), recv_.data(), count_, pithFloat32, pithSum,
                                 compressor_.get(), team_.comm(0), nullptr),
         "pithAllReduceCompressed");
    const double ended = seconds_now();
    pithCompressorStats_t stats = {};
    stats.size = sizeof(stats);
    must(pithCompressorGetStats(compressor_.get(), &stats), "pithCompressorGetStats");
    return {begun, ended, stats.gain, stats.bypassed != 0 ? 1 : stats.density_target};
  }

 private:
  const Team& team_;
  std::size_t count_;
  std::vector<float> send_;
  std::vector<float> recv_;
  std::unique_ptr<pithCompressor, End> compressor_;
};

void announce() {
  fmt::print("change\n");
  std::fflush(stdout);
  std::string answer;
  if (!std::getline(std::cin, answer)) throw std::runtime_error("no answer to the change");
}

std::vector<CallTime> make_calls(const Settings& settings, const Team& team) {
  Caller caller(settings, team);
  std::vector<CallTime> times;
  for (std::size_t i = 0; i < settings.before + settings.after; ++i) {
    if (i == settings.before && team.first_rank() == 0) announce();
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(settings.between_ms));
    times.push_back(caller.call());
  }
  return times;
}

// Ranks run on one machine, as its clock is theirs: a call lasts from its last rank's beginning.
void tell(const Settings& settings, const Team& team, const std::vector<CallTime>& own) {
  const std::vector<CallTime> all = team.gather_vectors(std::vector<std::vector<CallTime>>{own});
  if (team.first_rank() != 0) return;
  nlohmann::ordered_json record;
  for (std::size_t i = 0; i < own.size(); ++i) {
    CallTime whole = own[i];
    for (std::size_t rank = 0; rank < all.size() / own.size(); ++rank) {
      const CallTime& one = all[rank * own.size() + i];
      whole.begun_s = std::max(whole.begun_s, one.begun_s);
      whole.ended_s = std::max(whole.ended_s, one.ended_s);
    }
    record["seconds"].push_back(whole.ended_s - whole.begun_s);
    record["gain"].push_back(whole.gain);
    record["density"].push_back(whole.density);
  }
  std::ofstream(settings.out) << record.dump() << std::endl;
}

void run(const Settings& settings) {
  const Start start = start_from_environment();
  Team team(join(start.id, start.process, 1, start.processes), start.process, start.processes);
  tell(settings, team, make_calls(settings, team));
  team.close();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("a run of calls in the middle of which the links change", "step_bench");
  Settings settings;
  app.add_option("--spec", settings.spec, "of a compressor; empty: dense calls");
  app.add_option("--bytes", settings.bytes)->check(CLI::PositiveNumber);
  app.add_option("--before", settings.before, "calls");
  app.add_option("--after", settings.after, "calls");
  app.add_option("--between-ms", settings.between_ms, "what a rank computes between calls");
  app.add_option("--out", settings.out, "JSON, of rank 0")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    run(settings);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "step_bench: {}\n", error.what());
    return 1;
  }
}
