// Sums of sparse rows by ranks in virtual time: what a communicator's calls exchange, in one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/chooser.hpp"
#include "comm/rows/row_reduction.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

struct RowsCase {
  int ranks = 3;
  std::uint64_t rows = 1000;
  std::size_t width = 3;
  std::size_t count = 40;  // rows of each rank, in any order and repeated; rank 1 has none
  bool average = false;
  SimConfig sim = {};
};

inline std::string describe(const RowsCase& c) {
  return fmt::format("{} of {} from {} rows of {} on {} ranks",
                     c.average ? "the average" : "the sum", c.count, c.rows, c.width, c.ranks);
}

// Whole numbers, so that sums are exact.
inline float row_value(int rank, std::size_t i) {
  return static_cast<float>(random_bits(3, static_cast<std::uint64_t>(rank), i) % 201) - 100;
}

// What one rank brings and gets. Stays where it is.
struct RowsOfRank {
  RowsOfRank(const RowsCase& c, int rank) : windows(static_cast<std::size_t>(c.ranks)) {
    const std::size_t count = rank == 1 ? 0 : c.count;
    for (std::size_t i = 0; i < count; ++i) {
      indices.push_back(random_bits(2, static_cast<std::uint64_t>(rank), i) % c.rows);
    }
    for (std::size_t i = 0; i < count * c.width; ++i) values.push_back(row_value(rank, i));
    given = {.rows = c.rows,
             .row = {c.width, DType::f32},
             .average = c.average,
             .indices = indices.data(),
             .values = reinterpret_cast<const std::byte*>(values.data()),
             .count = count};
    out_indices.resize(c.rows);
    out_values.resize(c.rows * c.width);
    wanted = {out_indices.data(), reinterpret_cast<std::byte*>(out_values.data()), c.rows, &found};
  }
  RowsOfRank(const RowsOfRank&) = delete;

  std::vector<std::uint64_t> indices;
  std::vector<float> values;
  RowsGiven given;
  std::vector<std::uint64_t> out_indices;
  std::vector<float> out_values;
  std::size_t found = 0;
  RowsWanted wanted;
  PairWindows windows;
  std::map<std::pair<int, bool>, std::uint32_t> messages;  // of a peer and direction, so far
};

inline Task<Error> exchange_equal(Call& call, Collective collective, const void* send, void* recv,
                                  std::size_t each) {
  const Extent extent = extent_of(collective, call.size());
  CollectiveArgs args;
  args.collective = collective;
  args.send = {static_cast<std::byte*>(const_cast<void*>(send)), each * extent.send};
  args.recv = {static_cast<std::byte*>(recv), each * extent.recv};
  args.count = each;
  args.type = DType::u8;
  return call.chooser().algorithm(collective, each).run(call, args);
}

// out(rank) to every other rank, whose rows come to came[rank].
template <class Out>
Task<Error> trade(Call& call, RowsOfRank& own, const RowReduction& reduction, Out out,
                  std::vector<std::uint64_t> counts, std::vector<RowSet>& came) {
  for (const std::uint64_t count : counts) came.push_back(reduction.room(count));
  std::vector<Message> messages = reduction.messages(out, came);
  for (Message& message : messages) {
    message.number = own.messages[{message.peer, message.sends}]++;
  }
  Error error = co_await exchange_messages(call, messages, own.windows, 64);
  co_return error;
}

inline Task<Error> reduce_rows(Call& call, RowsOfRank& own) {
  RowReduction reduction(own.given, call.callers_rank(), call.size());
  const std::vector<RowsTold> mine = reduction.told();
  std::vector<RowsTold> told(mine.size());
  Error error = co_await exchange_equal(call, Collective::alltoall, mine.data(), told.data(),
                                        sizeof(RowsTold));
  if (!error) error = reduction.hear(told);
  if (error) co_return error;
  std::vector<RowSet> came;
  const auto owned = [&reduction](int rank) -> const RowSet& { return reduction.own(rank); };
  error = co_await trade(call, own, reduction, owned, reduction.counts(), came);
  if (!error) error = reduction.add(came);
  if (error) co_return error;
  constexpr std::uint16_t other_lanes = 128;
  Call second(call, other_lanes);
  const std::uint64_t sums = reduction.sums().numbers.size();
  std::vector<std::uint64_t> counts(mine.size());
  error = co_await exchange_equal(second, Collective::allgather, &sums, counts.data(), sizeof sums);
  if (error) co_return error;
  std::vector<RowSet> rest;
  const auto all = [&reduction](int) -> const RowSet& { return reduction.sums(); };
  error = co_await trade(call, own, reduction, all, counts, rest);
  if (!error) error = reduction.join(rest);
  co_return error ? error : reduction.write(own.wanted);
}

// One call of all ranks.
class RowsProgram {
 public:
  explicit RowsProgram(const RowsCase& c) : case_(c) {
    for (int rank = 0; rank < c.ranks; ++rank) {
      own_.push_back(std::make_unique<RowsOfRank>(c, rank));
      add(*own_.back());
    }
  }
  Task<Error> start(Call& call, int rank) { return reduce_rows(call, of(rank)); }
  RowsOfRank& of(int rank) { return *own_[static_cast<std::size_t>(rank)]; }

  // What is wrong where a rank's call has succeeded; empty is good.
  std::string check(int rank) {
    const RowsOfRank& own = of(rank);
    if (own.found != sums_.size()) return fmt::format("rank {} has {} rows", rank, own.found);
    const float divisor = case_.average ? static_cast<float>(case_.ranks) : 1;
    std::size_t at = 0;
    for (const auto& [index, row] : sums_) {
      if (own.out_indices[at] != index) return fmt::format("rank {}: another row", rank);
      for (std::size_t w = 0; w < case_.width; ++w) {
        if (own.out_values[at * case_.width + w] == row[w] / divisor) continue;
        return fmt::format("rank {}: another sum of row {}", rank, index);
      }
      ++at;
    }
    return {};
  }

 private:
  void add(const RowsOfRank& own) {
    for (std::size_t i = 0; i < own.indices.size(); ++i) {
      std::vector<float>& row = sums_.try_emplace(own.indices[i], case_.width).first->second;
      for (std::size_t w = 0; w < case_.width; ++w) row[w] += own.values[i * case_.width + w];
    }
  }

  RowsCase case_;
  std::vector<std::unique_ptr<RowsOfRank>> own_;
  std::map<std::uint64_t, std::vector<float>> sums_;
};

}  // namespace pith::test
