// The ranks that one thread drives: their communicators, and exchanges between threads through
// them.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "frame/options.hpp"
#include "must.hpp"

namespace pith_perf {

using pith_bench::must;

// Communicators of ranks first .. first + count - 1 of `ranks`.
std::vector<pithComm_t> join(const pithUniqueId& id, int first, int count, int ranks);

// Every thread makes the same calls in the same order.
class Team {
 public:
  // Takes ownership of the communicators. Destroyed by an exception it aborts them.
  Team(std::vector<pithComm_t> comms, int first_rank, int ranks);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(comms_.size()); }
  int ranks() const { return ranks_; }
  int first_rank() const { return first_rank_; }
  pithComm_t comm(int local) const { return comms_[static_cast<std::size_t>(local)]; }

  // Calls one(local) for each rank, as a group if there are several.
  template <class One>
  void each(const char* call, const One& one) const {
    if (size() > 1) must(pithGroupStart(), "pithGroupStart");
    for (int local = 0; local < size(); ++local) must(one(local), call);
    if (size() > 1) must(pithGroupEnd(), "pithGroupEnd");
  }

  void barrier() const;
  // Each rank's record, in rank order. `mine` has one for each rank of this thread.
  template <class T>
  std::vector<T> gather(std::span<const T> mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(ranks_));
    gather_bytes(mine.data(), all.data(), sizeof(T));
    return all;
  }
  // Each rank's vector, all of the same length, concatenated. `mine` has one for each rank of this
  // thread.
  template <class T>
  std::vector<T> gather_vectors(const std::vector<std::vector<T>>& mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t each = mine[0].size();
    std::vector<T> sent;
    for (const std::vector<T>& one : mine) sent.insert(sent.end(), one.begin(), one.end());
    std::vector<T> all(each * static_cast<std::size_t>(ranks_));
    gather_bytes(sent.data(), all.data(), each * sizeof(T));
    return all;
  }
  // The values of all threads, the same number of each, concatenated by thread.
  std::vector<double> gather_values(std::span<const double> mine) const;
  // Combines the threads' values.
  double average(double value, Average how) const;
  std::int64_t sum(std::int64_t value) const;

  // Collective: no rank leaves before the others.
  void close();
  // Aborts, which tells the other ranks.
  void abort();

 private:
  void gather_bytes(const void* mine, void* all, std::size_t bytes) const;
  template <class T>
  std::vector<T> gather_same(const T& value) const;

  std::vector<pithComm_t> comms_;
  int first_rank_;
  int ranks_;
};

}  // namespace pith_perf
