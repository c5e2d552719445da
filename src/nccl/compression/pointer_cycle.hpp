// Which vector of a training step a call carries, told from nothing but the sequence of calls: a
// step repeats the same sends from the same addresses, so a vector is a place in that cycle.
//
// A rank's own view, without communication: the ranks compare the periods that they see, and
// nothing else (cycle_agreement.hpp). Where all of them see one, each knows which vector its call
// carries.
//
// Two vectors of equal size must never be taken for each other. A place is kept while every call is
// the one that its cycle expects. Afterwards a cycle waits, and is taken up again only where all of
// its calls return and the sizes alone tell which one is first: of two vectors of equal size that
// have exchanged their memory, the addresses tell nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace pith::nccl {

class PointerCycle {
 public:
  static constexpr std::size_t most_calls = 1024;  // in a cycle
  static constexpr std::size_t most_waiting = 4;   // cycles

  struct Call {
    const void* send;
    std::size_t count;
    int type;
    bool by_plan = false;  // host_plan.hpp
    bool operator==(const Call&) const = default;
    bool same_shape(const Call& other) const {
      return count == other.count && type == other.type && by_plan == other.by_plan;
    }
  };
  struct Seen {
    std::size_t period = 0;  // in which this rank's calls repeat; 0: in none
    // A number that stands for one vector of the program; none: not known yet. Known from the call
    // on with which a period has been seen for two periods.
    std::optional<std::uint32_t> place;
  };

  Seen next(const Call& call);

  // Places that will not come again.
  std::vector<std::uint32_t> take_dropped();
  // Places of cycles that wait.
  std::vector<std::uint32_t> waiting() const;

 private:
  struct Cycle {
    std::vector<Call> calls;
    std::vector<std::uint32_t> places;
  };
  void remember(const Call& call);
  std::size_t find_period() const;
  std::size_t returning() const;
  void begin(std::size_t period);
  void park();
  void drop(const Cycle& cycle);
  // Where a waiting cycle's calls are this one's, from which of them on; none.
  static std::optional<std::size_t> rotation(const Cycle& old, const std::vector<Call>& now);

  std::deque<Call> history_;          // the last ones, newest at the end
  std::vector<std::uint64_t> equal_;  // [p]: how many calls up to the last equal the one p before
  std::size_t period_ = 0;            // seen with the last call
  std::size_t streak_ = 0;            // calls in a row with which that was seen
  bool active_ = false;
  Cycle cycle_;             // while active
  std::size_t at_ = 0;      // the next call's place in it
  std::size_t lasted_ = 0;  // its calls so far
  std::deque<Cycle> waiting_;
  std::vector<std::uint32_t> dropped_;
  std::uint32_t next_place_ = 0;
};

}  // namespace pith::nccl
