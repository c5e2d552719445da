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
    // Of calls in a row, with this one, once they are enough; see call_time.hpp.
    std::optional<double> mean_of_run(double seconds);

    Plan plan;
    bool begun = false;
    double run_s = 0;  // of the calls in a row until now
    std::uint32_t run_calls = 0;
    RecentTimes times;      // of one era
    RecentTimes prompt;     // those of them that are
    std::uint64_t era = 0;  // which
    LinkCost link;          // as it was then
  };

  Trial& trial(Plan plan);
  RecentTimes times(Plan plan, std::uint64_t era);
  // A call of the largest size.
  CallTime call(Plan plan, double seconds = 0) const;
  // One of each plan that has times of the era, its median; of prompt calls, or of all.
  std::vector<CallTime> calls_of(std::uint64_t era, bool prompt) const;
  void forget_times();

  std::size_t bytes = 0;  // of the last call
  Plan chosen = 0;
  std::vector<Trial> trials;
  NoiseScale noise;  // of the choice
  StepDetectors steps;
  std::uint64_t calls = 0;
  std::uint64_t tried = 0;    // calls by rivals
  bool chunks_tried = false;  // or being tried now
};

}  // namespace pith
