// Learns from the times of calls which algorithm is fastest, by collective and size.
//
// A cell (collective, size class) begins with the model's own choice and some rivals, which some of
// its first calls are made by (comm/call_planner.hpp). A rival that is clearly faster becomes the
// choice, and one that is clearly slower, or has been tried enough, is tried no more. When the
// times of a settled cell change by a step, its rivals are tried anew. Chunks of other lengths are
// tried once the algorithm is settled.
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
#include "model/model.hpp"
#include "model/recent_times.hpp"
#include "model/robust.hpp"

namespace pith {

// What a cell has learnt.
struct TunedCell {
  struct Tried {
    Choices::Plan plan = 0;
    std::size_t samples = 0;
    double median_s = 0;  // at the largest size of the class
    double doubt = 0;     // of its logarithm
  };

  Collective collective = Collective::allreduce;
  SizeClass size{0};
  Choices::Plan chosen = 0;
  bool settled = false;  // no rival is tried now
  std::uint64_t timed_calls = 0;
  std::vector<Tried> tried;  // where there are times
};

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
  std::vector<TunedCell> cells() const;  // tuned_cells.cpp

 private:
  struct Trial {
    explicit Trial(Choices::Plan what) : plan(what) {}

    Choices::Plan plan;
    bool begun = false;
    RecentTimes times;
  };
  struct Learning {
    std::size_t bytes = 0;  // of the last call
    Choices::Plan chosen = 0;
    std::vector<Trial> trials;
    StepDetectors steps;
    std::uint64_t settled_at = 0;  // by number of calls
    std::uint64_t calls = 0;
    std::uint64_t patience = 0;  // calls between two times that rivals are tried
    bool chunks_tried = false;   // or being tried now
  };
  using Key = std::pair<Collective, std::size_t>;

  double at_largest(const CallTime& time) const;
  Learning& learning(const CallTime& time);
  static bool is_step(Learning& cell, double seconds);
  void try_again(const Key& key, Learning& cell);
  void decide(const Key& key, Learning& cell);
  bool try_chunks(const Key& key, Learning& cell);
  void choose(const Key& key, Learning& cell, Choices::Plan plan);
  static Trial& trial(Learning& cell, Choices::Plan plan);

  const Model& model_;
  const Choices start_;
  Choices wanted_;
  std::map<Key, Learning> cells_;
  std::vector<std::string> reasons_;
};

}  // namespace pith
