// What calls of a collective and size class have taken, by each way of making them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/call_time.hpp"
#include "model/choices.hpp"
#include "model/recent_times.hpp"
#include "model/robust.hpp"

namespace pith {

struct CellTimes {
  using Plan = Choices::Plan;

  struct Trial {
    explicit Trial(Plan what) : plan(what) {}

    Plan plan;
    bool begun = false;
    RecentTimes times;      // of one era
    RecentTimes prompt;     // those of them that are
    std::uint64_t era = 0;  // which
    LinkCost link;          // as it was then
  };

  // Calls in a row by one plan; see call_time.hpp.
  struct Run {
    Plan plan = Choices::by_model;
    std::uint32_t calls = 0;
    std::uint32_t counted = 0;
    double seconds = 0;  // of those
    double longest_s = 0;
    double slack_s = 0;
  };
  struct Time {
    double seconds = 0;
    double slack_s = 0;  // what may have passed since the call before, less what has

    bool prompt() const { return slack_s > 0; }
  };

  // Adds a call to the run, which is one of `kind`. A time, if that is known with it.
  std::optional<Time> add_to_run(Plan by, const Time& call, const CallRun& kind);
  Trial& trial(Plan plan);
  RecentTimes times(Plan plan, std::uint64_t era);
  // A call of the largest size.
  CallTime call(Plan plan, double seconds = 0) const;
  // One of each plan that has times of the era, its median; of prompt calls, or of all.
  std::vector<CallTime> calls_of(std::uint64_t era, bool prompt) const;
  void forget_times();

  std::size_t bytes = 0;  // of the last call
  Plan chosen = 0;
  Run run;
  std::vector<Trial> trials;
  NoiseScale noise;  // of the choice
  StepDetectors steps;
  std::uint64_t calls = 0;
  std::uint64_t tried = 0;    // calls by rivals
  bool chunks_tried = false;  // or being tried now
};

}  // namespace pith
