// Learns from the times of calls which algorithm is fastest, by collective and size.
//
// A cell (collective, size class) begins with the model's own choice and some rivals, which some of
// its first calls are made by (turn.hpp). A rival that is clearly faster becomes the choice, and
// one that is clearly slower, or has been tried enough, is tried no more. Chunks of other lengths
// are tried once the algorithm is settled.
//
// When the times of a choice change by a step, rivals are tried anew. A step that another link
// would explain, in a call that waited for nobody, begins an era: what messages cost is fitted to
// the times since (call_link.hpp), and older times are carried over by the cost functions. So all
// sizes have another choice at once where the link has changed, those that were never called
// included.
//
// Not for several threads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/call_link.hpp"
#include "model/cell_times.hpp"
#include "model/choices.hpp"
#include "model/link_table.hpp"
#include "model/model.hpp"

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

  void add(const CallTime& call);
  // What should hold.
  const Choices& wanted() const { return wanted_; }
  const Choices& start() const { return start_; }
  // What messages cost, as far as is known.
  const LinkCost& link() const { return link_; }
  std::vector<TunedCell> cells() const;  // tuned_cells.cpp
  // What calls have told of the link, if any has.
  std::optional<LinkTable::OfCalls> learnt_link() const;
  // Changes of choices since it was called last, a line for each, with the times that are their
  // reason.
  std::vector<std::string> take_reasons() { return std::exchange(reasons_, {}); }

 private:
  using Key = std::pair<Collective, std::size_t>;
  using Plan = Choices::Plan;

  double at_largest(const CallTime& time) const;
  double log_cost(const CellTimes& cell, Plan plan, const LinkCost& link) const;
  CellTimes& cell_of(const CallTime& time);
  void add(CellTimes::Trial& trial, double seconds, bool prompt) const;
  Choices::Cell& wanted(const Key& key) {
    return wanted_.at(key.first, SizeClass::of_index(key.second));
  }
  Plan planned(const Key& key, const Choices::Cell& cell) const;

  double slack_of(const CallTime& time) const;
  bool is_step(CellTimes& cell, double seconds) const;
  bool may_be_link(const CellTimes& cell, double seconds) const;
  void begin_era(const Key& key, CellTimes& cell, double seconds);
  void try_again(const Key& key, CellTimes& cell, double seconds);
  std::vector<CallTime> link_times() const;
  void fit();
  void carry_over(const Key& key, CellTimes& cell, const Choices::Cell& fresh);
  Plan likely_best(CellTimes& cell) const;
  Plan expected_best(const Key& key, CellTimes& cell, const Choices::Cell& fresh) const;
  void try_promising(const Key& key, CellTimes& cell);
  double own_time(CellTimes& cell, std::span<const LinkCost> links) const;
  bool drop_hopeless(CellTimes& cell, Choices::Cell& wanted) const;
  void decide(const Key& key, CellTimes& cell, bool says_more);
  void try_chunks(const Key& key, CellTimes& cell);
  void choose(const Key& key, CellTimes& cell, Plan plan);

  const Model& model_;
  const bool over_links_;
  const Choices start_;
  Choices wanted_;
  LinkCost link_;
  std::uint64_t era_ = 0;
  LinkCost era_began_;  // with this link; fits begin there, and so do not drift
  std::map<Key, CellTimes> cells_;
  std::vector<std::string> reasons_;
};

}  // namespace pith
