// One rank's part in a sum of sparse vectors of rows: what it tells and sends to the others, and
// what it makes of theirs. all_reduce_rows.cpp exchanges it. In the order of its calls:
//
//   told(), hear()      how many rows ranks bring for each other, and of what kind
//   own(), add()        rows go to the ranks that own them (owner_of), which add them up
//   sums(), join()      sums go to all ranks; before, their numbers
//   write()             the result
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/point_to_point.hpp"
#include "comm/rows/row_set.hpp"
#include "core/error.hpp"
#include "kernels/host_compute.hpp"

namespace pith {

struct RowsGiven {
  std::uint64_t rows = 0;  // of the whole vector, at most 2^32
  RowType row;
  bool average = false;
  const std::uint64_t* indices = nullptr;  // `count` of them, in any order and repeated
  const std::byte* values = nullptr;
  std::size_t count = 0;
};

struct RowsWanted {
  std::uint64_t* indices = nullptr;  // `capacity` of them, ascending
  std::byte* values = nullptr;
  std::size_t capacity = 0;
  std::size_t* count = nullptr;  // of all rows of the sum, also if they have no room
};

// What every rank tells every other.
struct RowsTold {
  static constexpr std::uint64_t all_are_inside = ~std::uint64_t{0};

  std::uint64_t rows = 0;
  std::uint64_t width = 0;
  std::uint32_t type = 0;
  std::uint32_t average = 0;
  std::uint64_t outside = all_are_inside;  // place of an index that is no row
  std::uint64_t count = 0;                 // of the rows that it sends to the other

  bool same_kind(const RowsTold& other) const {
    return rows == other.rows && width == other.width && type == other.type &&
           average == other.average;
  }
  std::string kind() const;
};

class RowReduction {
 public:
  // `given` stays where it is.
  RowReduction(const RowsGiven& given, int rank, int ranks);

  // By rank: what this one tells, and what it has heard. The same error on every rank if they call
  // for different sums (invalid_usage), or an index is no row (invalid_argument).
  std::vector<RowsTold> told() const;
  Error hear(std::vector<RowsTold> told);

  // The rows that a rank adds up.
  const RowSet& own(int rank) const { return own_[at(rank)]; }
  // The number of rows that each rank sends to this one.
  std::vector<std::uint64_t> counts() const;
  // Those rows by rank, but for this rank's own. An error (internal) if a rank has sent others than
  // it may, here and below.
  Error add(std::span<const RowSet> came);

  const RowSet& sums() const { return sums_; }
  // The sums of all ranks, likewise.
  Error join(std::span<const RowSet> came);

  // An error (invalid_argument) if there is too little room; the first rows are written.
  Error write(const RowsWanted& wanted) const;

  // Room for as many rows as a rank has told, but for no more than there are.
  RowSet room(std::uint64_t count) const;
  // All messages of an exchange: out(rank) goes to every other rank, came[rank] takes what that one
  // sends. Both stay where they are.
  template <class Out>
  std::vector<Message> messages(const Out& out, std::span<RowSet> came) const;

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  static void append(std::vector<Message>& messages, int peer, bool sends, const RowSet& rows);
  std::vector<RowSet> own_by_owner();
  // Adds up one set of each rank, in rank order, which owner(rank) owns.
  template <class Owner>
  Error sum(std::span<const RowSet> came, const RowSet& mine, const Owner& owner, RowSet& sums);
  Error check(std::span<const std::uint32_t> numbers, int owner, int rank) const;

  const RowsGiven& given_;
  HostCompute host_;
  const int rank_;
  const int ranks_;
  CollectiveArgs averaging_;  // its op, factor and divisor
  std::uint64_t outside_ = RowsTold::all_are_inside;
  std::vector<RowSet> own_;  // by owner
  std::vector<RowsTold> told_;
  RowSet sums_;  // of the rows that this rank owns
  RowSet all_;
};

template <class Out>
std::vector<Message> RowReduction::messages(const Out& out, std::span<RowSet> came) const {
  std::vector<Message> messages;
  for (int d = 1; d < ranks_; ++d) {
    const int to = (rank_ + d) % ranks_;
    const int from = (rank_ + ranks_ - d) % ranks_;
    append(messages, to, true, out(to));
    append(messages, from, false, came[at(from)]);
  }
  return messages;
}

}  // namespace pith
