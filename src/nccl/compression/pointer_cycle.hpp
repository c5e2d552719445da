// Finds out which vector of a training step a call carries, from the sequence of calls alone: each
// step repeats the same sends from the same addresses, so a vector is a place in that cycle.
//
// Each rank has its own view, without communication; the ranks compare only their periods
// (cycle_agreement.hpp). If all see the same period, each knows its call's vector.
//
// Two vectors of equal size must never be confused. A place is valid while every call is the one
// that the cycle expects. Otherwise the cycle is set aside, and resumed only when all of its calls
// return and the sizes alone tell which one is first: if two vectors of equal size have exchanged
// their memory, addresses would mislead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace pith::nccl {

class PointerCycle {
 public:
  static constexpr std::size_t most_calls = 1024;  // per cycle
  static constexpr std::size_t most_waiting = 4;   // cycles set aside

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
    std::size_t period = 0;  // in which this rank's calls repeat; 0: none
    // Identifies a vector of the program; empty: unknown. Known once a period has been seen for two
    // periods.
    std::optional<std::uint32_t> place;
  };

  Seen next(const Call& call);

  // Places that will not occur again.
  std::vector<std::uint32_t> take_dropped();
  // Places of the cycles set aside.
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
  // At which call of `old` the calls `now` begin, if they are the same cycle; else empty.
  static std::optional<std::size_t> rotation(const Cycle& old, const std::vector<Call>& now);

  std::deque<Call> history_;          // the last calls, newest at the end
  std::vector<std::uint64_t> equal_;  // [p]: how many of the last calls equal the one p before them
  std::size_t period_ = 0;            // as of the last call
  std::size_t streak_ = 0;            // consecutive calls with that period
  bool active_ = false;
  Cycle cycle_;             // if active
  std::size_t at_ = 0;      // place of the next call
  std::size_t lasted_ = 0;  // its calls so far
  std::deque<Cycle> waiting_;
  std::vector<std::uint32_t> dropped_;
  std::uint32_t next_place_ = 0;
};

}  // namespace pith::nccl
