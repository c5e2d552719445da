// Times several ways to make one call, interleaved: every round calls each of them, in another
// order. What the machine and the link do meanwhile falls on all.
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "frame/team.hpp"

namespace pith_perf {

struct ReplayLimits {
  double call_s = 1;      // no replay if even the best takes longer
  double batch_s = 2e-3;  // of calls back to back
  int rounds_min = 3;
  int rounds_max = 15;
  double hopeless = 3;  // who takes this many times the best's time is only tried
};

// Seconds, the slowest rank's; the same on all ranks.
struct Duration {
  double median = 0;
  double least = 0;
  double most = 0;
  int rounds = 0;  // 0: only tried
};

struct Replayed {
  std::string left_out;             // why there are no durations; empty: there are
  std::vector<Duration> durations;  // by contestant
  int calls = 0;                    // in a batch
};

// All ranks make the same calls in the same order. They run on one machine, as its clock is theirs.
class Replay {
 public:
  using Call = std::function<void()>;

  // `control`: for meetings and agreements, which are not timed.
  Replay(const ReplayLimits& limits, const Team& control);

  // Calls until the library has learnt of them what it can, or until the time is over.
  void let_learn(const Call& call, double allowed_s) const;

  // The first two contestants are the default and the same again, which are never hopeless.
  // `allowed_s`: what the rounds may take; `patience_s`: what the least rounds may take at most.
  Replayed run(const std::vector<Call>& contestants, double allowed_s, double patience_s);

 private:
  double meet() const;
  double timed(const Call& call, int calls) const;
  double try_out(const Call& call) const;
  std::vector<double> try_all(const std::vector<Call>& contestants, double patience_s) const;
  bool goes_on(int round, double start_s, double allowed_s) const;
  std::vector<std::vector<double>> rounds(const std::vector<Call>& contestants,
                                          std::vector<std::size_t> order, int calls,
                                          double allowed_s);

  ReplayLimits limits_;
  const Team& control_;
  std::mt19937 random_{1};  // the same on all ranks
  double meeting_s_ = 0;    // from when the last rank comes until all know
  bool warms_up_ = true;
};

}  // namespace pith_perf
