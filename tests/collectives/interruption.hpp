// A call that is interrupted, at one step of the simulation or at every one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/sanitized.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

struct Interruption {
  std::uint64_t step = 0;  // of the simulation, in the call
  bool death = false;      // else an abort
  int victim = 0;

  bool survived_by(int rank) const { return !death || rank != victim; }
};

struct Interrupted {
  bool reached = false;  // false: the call had ended before
  std::vector<Error> errors;
};

// Begins the next call of all ranks: program.start(call, rank).
template <class Ranks>
void start_call(Ranks& program, World& world) {
  world.new_calls();
  std::vector<Task<Error>> tasks;
  for (int r = 0; r < world.size(); ++r) {
    tasks.push_back(program.start(world.call(r), r));
  }
  world.start(std::move(tasks));
}

// Makes the next call of all ranks.
template <class Ranks>
std::uint64_t steps_of_call(Ranks& program, World& world) {
  start_call(program, world);
  std::uint64_t steps = 0;
  while (world.sim().step()) ++steps;
  world.finish();
  return steps;
}

// The next call of all ranks, which then come to its end.
template <class Ranks>
Interrupted interrupt_call(Ranks& program, World& world, const Interruption& where) {
  start_call(program, world);
  std::uint64_t done = 0;
  while (done < where.step && world.sim().step()) ++done;
  if (where.death) {
    world.sim().kill(where.victim, 0);
  } else {
    world.revoke(where.victim, Error(Code::remote, "an abort", where.victim));
  }
  return {done == where.step, world.finish()};
}

// interrupt(c, calls_before, where, failure) -> whether the interruption was reached, at every
// `stride`-th step, ranks in turn; every second one of these, of deaths the others than of aborts,
// but with PITH_TEST_FULL=1. Empty is good.
template <class Case, class Interrupt>
std::string interrupt_everywhere(const Case& c, int calls_before, std::uint64_t stride,
                                 Interrupt interrupt) {
  std::string failure;
  for (const bool death : {false, true}) {
    bool reached = true;
    for (std::uint64_t turn = !full && death ? 1 : 0; reached; turn += full ? 1 : 2) {
      const std::uint64_t step = turn * stride;
      const Interruption where{step, death, static_cast<int>(turn / (full ? 1 : 2)) % c.ranks};
      reached = interrupt(c, calls_before, where, failure);
      if (failure.empty()) continue;
      return fmt::format("{}, {} of rank {} at step {}: {}", describe(c), death ? "death" : "abort",
                         where.victim, step, failure);
    }
  }
  return {};
}

}  // namespace pith::test
