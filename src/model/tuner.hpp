// Learns from the times of calls which algorithm is fastest, by collective and size.
//
// A cell (collective, size class) begins with the model's own choice and some rivals, which some of
// its first calls are made by (comm/call_planner.hpp). A rival that is clearly faster becomes the
// choice, and one that is clearly slower, or has been tried enough, is tried no more. When the
// times of a settled cell change by a step, its rivals are tried anew.
//
// Not for several threads.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/call_time.hpp"
#include "model/choices.hpp"
#include "model/cost_correction.hpp"
#include "model/model.hpp"
#include "model/robust.hpp"

namespace pith {

class Tuner {
 public:
  explicit Tuner(const Model& model);

  void add(const CallTime& time);
  // What should hold.
  const Choices& wanted() const { return wanted_; }
  const Choices& start() const { return start_; }
  // Changes of choices since it was called last, a line for each, with the times that are their
  // reason.
  std::vector<std::string> take_reasons() { return std::exchange(reasons_, {}); }

 private:
  // An algorithm in a cell.
  struct Trial {
    Choices::Place place = 0;
    int samples = 0;
  };
  struct Learning {
    std::size_t bytes = 0;  // of the last call
    Choices::Place chosen = 0;
    std::vector<Trial> trials;
    StepDetectors steps;
    std::uint64_t settled_at = 0;  // by number of calls
    std::uint64_t calls = 0;
    std::uint64_t patience = 0;  // calls between two times that rivals are tried
  };
  using Key = std::pair<Collective, std::size_t>;

  // The logarithm of the seconds that a call takes, as far as is known.
  struct Prediction {
    double log_s = 0;
    double log_sd = 0;
  };
  Prediction predict(Choices::Place place, std::size_t bytes) const;
  Learning& learning(const CallTime& time);
  bool is_step(Learning& cell, const CallTime& time);
  void try_again(const Key& key, Learning& cell);
  void decide(const Key& key, Learning& cell);
  void choose(const Key& key, Learning& cell, Choices::Place place);
  static Trial& trial(Learning& cell, Choices::Place place);

  const Model& model_;
  const Choices start_;
  Choices wanted_;
  CostCorrection correction_;
  std::map<Key, Learning> cells_;
  std::vector<std::string> reasons_;
};

}  // namespace pith
