// What the tests of growth share. The first ranks of a run are the members, the others join.
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ranks.hpp"

namespace ranks {

inline std::vector<Setup> processes(const std::string& init_timeout = "20") {
  std::vector<Setup> setups = between_processes();
  for (Setup& setup : setups) setup.environment.emplace_back("PITH_INIT_TIMEOUT", init_timeout);
  return setups;
}
// For what takes long and does not depend on the link. With PITH_TEST_FULL=1 all of them.
inline std::vector<Setup> some_processes(const std::string& init_timeout = "20") {
  std::vector<Setup> setups = processes(init_timeout);
  if (!std::getenv("PITH_TEST_FULL")) setups.erase(setups.begin() + 1, setups.end());
  return setups;
}

inline std::vector<Setup> with_threads(std::vector<Setup> setups) {
  Setup& threads = setups.emplace_back();
  threads.way = Way::threads;
  threads.environment = {{"PITH_INIT_TIMEOUT", "20"}};
  return setups;
}

// The communicator of the first `members` ranks; null on the others.
inline pithComm_t members_of(Rank& self, int members, int which = 0) {
  const pithUniqueId id = self.id(which);
  pithComm_t comm = nullptr;
  if (self.rank < members) ok(pithCommInitRank(&comm, members, id, self.rank));
  return comm;
}

// Rows of slots behind those of the ranks, which take an id.
inline constexpr int first_row = most_ranks - 16;
inline constexpr std::size_t words = sizeof(pithUniqueId) / sizeof(std::uint64_t);

inline void tell_id(Rank& self, const pithUniqueId& id, int which = 0) {
  std::array<std::uint64_t, words> parts{};
  std::memcpy(parts.data(), id.internal, sizeof id.internal);
  for (std::size_t i = 0; i < words; ++i) {
    self.slot(first_row + 3 * which + static_cast<int>(i / 8), static_cast<int>(i % 8)) = parts[i];
  }
  self.slot(first_row + 3 * which + 2) = 1;
}

inline pithUniqueId told_id(Rank& self, int which = 0) {
  wait_until([&] { return self.slot(first_row + 3 * which + 2) != 0; });
  std::array<std::uint64_t, words> parts{};
  for (std::size_t i = 0; i < words; ++i) {
    parts[i] = self.slot(first_row + 3 * which + static_cast<int>(i / 8), static_cast<int>(i % 8));
  }
  pithUniqueId id;
  std::memcpy(id.internal, parts.data(), sizeof id.internal);
  return id;
}

// The id that the coordinator makes, on all ranks.
inline pithUniqueId shared_id(Rank& self, pithComm_t comm, int coordinator = 0, int which = 0) {
  if (self.rank == coordinator) {
    pithUniqueId id;
    ok(pithCommGetUniqueId(comm, &id));
    tell_id(self, id, which);
  }
  return told_id(self, which);
}

// As a member where comm is none, else as a newcomer of the rank's own number.
inline pithResult_t grow(Rank& self, pithComm_t comm, int nranks, const pithUniqueId& id,
                         pithComm_t* grown, int coordinator = 0) {
  if (!comm) return pithCommGrow(nullptr, nranks, &id, self.rank, grown, nullptr);
  return pithCommGrow(comm, nranks, self.rank == coordinator ? &id : nullptr, -1, grown, nullptr);
}

inline void has_rank(pithComm_t comm, int rank, int size) {
  int found_rank = -1;
  int found_size = -1;
  ok(pithCommUserRank(comm, &found_rank));
  ok(pithCommCount(comm, &found_size));
  ensure(found_rank == rank && found_size == size,
         "rank " + std::to_string(found_rank) + " of " + std::to_string(found_size) +
             ", expected " + std::to_string(rank) + " of " + std::to_string(size));
}

// Every rank gives another power of two.
inline void works(pithComm_t comm, int rank, int size) {
  has_rank(comm, rank, size);
  std::int64_t sum = std::int64_t{1} << rank;
  ok(pithAllReduce(&sum, &sum, 1, pithInt64, pithSum, comm, nullptr));
  ensure(sum == (std::int64_t{1} << size) - 1, "a wrong sum: " + std::to_string(sum));
}

}  // namespace ranks
