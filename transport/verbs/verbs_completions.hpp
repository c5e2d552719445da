// What the devices of a rank report, for all its pairs: taken at once, acted upon in order.
//
// Data connections are counted while their completions are taken, so that a pair can wait for its
// own to end in the middle of something else, without anything being acted upon.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "transport/verbs/verbs_lanes.hpp"

namespace pith {

class VerbsCompletions {
 public:
  explicit VerbsCompletions(std::span<const std::unique_ptr<VerbsRail>> rails) : rails_(rails) {}

  // Whose completions of data are counted from now on.
  void add(std::uint32_t rank, VerbsLanes& lanes);
  // Room for all that the devices' queues can hold, so that gather() throws nothing.
  void reserve(std::size_t completions) { taken_.reserve(completions); }
  // Takes what there is; true if there was anything. An error is a device's, for good.
  Expected<bool> gather();

  bool empty() const { return next_ == taken_.size(); }
  // The next one to be acted upon; there must be one.
  const ibv_wc& next() const { return taken_[next_]; }
  ibv_wc take() { return taken_[next_++]; }
  // Forgets those that have been acted upon; there must be no others.
  void clear() {
    taken_.clear();
    next_ = 0;
  }
  // Calls act(completion) for those of a rank's data, before their turn.
  template <class Act>
  void take_data_of(std::uint32_t rank, Act&& act) {
    for (std::size_t i = next_; i < taken_.size(); ++i) {
      const ibv_wc completion = taken_[i];
      if (!is_data(completion) || VerbsTag::unpack(completion.wr_id).peer != rank) continue;
      taken_[i].wr_id = VerbsTag{VerbsWork::none, rank, 0}.pack();
      act(completion);
    }
  }

  static bool is_data(const ibv_wc& completion) {
    const VerbsWork work = VerbsTag::unpack(completion.wr_id).work;
    return work == VerbsWork::data_sent || work == VerbsWork::data_came;
  }

 private:
  std::span<const std::unique_ptr<VerbsRail>> rails_;
  std::vector<VerbsLanes*> lanes_;  // by rank
  std::vector<ibv_wc> taken_;
  std::size_t next_ = 0;
};

}  // namespace pith
