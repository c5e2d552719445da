#include "frame/team.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

namespace pith_perf {

std::vector<pithComm_t> join(const pithUniqueId& id, int first, int count, int ranks) {
  std::vector<pithComm_t> comms(static_cast<std::size_t>(count), nullptr);
  if (count > 1) must(pithGroupStart(), "pithGroupStart");
  for (int local = 0; local < count; ++local) {
    must(pithCommInitRank(&comms[static_cast<std::size_t>(local)], ranks, id, first + local),
         "pithCommInitRank");
  }
  if (count > 1) must(pithGroupEnd(), "pithGroupEnd");
  return comms;
}

Team::Team(std::vector<pithComm_t> comms, int first_rank, int ranks)
    : comms_(std::move(comms)), first_rank_(first_rank), ranks_(ranks) {}

Team::~Team() {
  // After an error the other ranks may never complete a collective.
  if (std::uncaught_exceptions() > 0) abort();
  for (pithComm_t comm : comms_) pithCommDestroy(comm);
}

void Team::abort() {
  for (pithComm_t comm : std::exchange(comms_, {})) pithCommAbort(comm);
}

void Team::barrier() const {
  each("pithBarrier", [&](int local) { return pithBarrier(comm(local), nullptr); });
}

void Team::gather_bytes(const void* mine, void* all, std::size_t bytes) const {
  // All ranks of this thread receive the same; the first one's result is used.
  const std::size_t total = bytes * static_cast<std::size_t>(ranks_);
  std::vector<std::byte> others(total * static_cast<std::size_t>(size() - 1));
  each("pithAllGather", [&](int local) {
    const auto index = static_cast<std::size_t>(local);
    void* into = local == 0 ? all : others.data() + total * (index - 1);
    return pithAllGather(static_cast<const std::byte*>(mine) + bytes * index, into, bytes,
                         pithUint8, comm(local), nullptr);
  });
}

std::vector<double> Team::gather_values(std::span<const double> mine) const {
  // Each of the thread's ranks sends them; those of its first are kept.
  const auto here = static_cast<std::size_t>(size());
  std::vector<double> sent;
  for (std::size_t local = 0; local < here; ++local) {
    sent.insert(sent.end(), mine.begin(), mine.end());
  }
  std::vector<double> all(mine.size() * static_cast<std::size_t>(ranks_));
  gather_bytes(sent.data(), all.data(), mine.size_bytes());
  std::vector<double> kept;
  for (std::size_t first = 0; first < all.size(); first += mine.size() * here) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    kept.insert(kept.end(), begin, begin + static_cast<std::ptrdiff_t>(mine.size()));
  }
  return kept;
}

// One value per thread: all its ranks send the same one, of which one is kept.
template <class T>
std::vector<T> Team::gather_same(const T& value) const {
  const std::vector<T> mine(comms_.size(), value);
  const std::vector<T> all = gather(std::span<const T>(mine));
  std::vector<T> kept;
  for (std::size_t rank = 0; rank < all.size(); rank += comms_.size()) kept.push_back(all[rank]);
  return kept;
}

double Team::average(double value, Average how) const {
  const std::vector<double> all = gather_same(value);
  if (how == Average::rank0) return all.front();
  if (how == Average::min) return *std::min_element(all.begin(), all.end());
  if (how == Average::max) return *std::max_element(all.begin(), all.end());
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

std::int64_t Team::sum(std::int64_t value) const {
  const std::vector<std::int64_t> all = gather_same(value);
  return std::accumulate(all.begin(), all.end(), std::int64_t{0});
}

void Team::close() {
  barrier();
  std::vector<pithComm_t> comms = std::exchange(comms_, {});
  for (pithComm_t comm : comms) must(pithCommDestroy(comm), "pithCommDestroy");
}

}  // namespace pith_perf
