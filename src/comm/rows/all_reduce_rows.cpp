#include "comm/rows/all_reduce_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "collectives/patterns.hpp"
#include "comm/group.hpp"
#include "core/kernel_args.hpp"
#include "kernels/host_compute.hpp"

namespace pith {

namespace {

constexpr std::uint64_t all_are_inside = ~std::uint64_t{0};

// What every rank tells every other.
struct Told {
  std::uint64_t rows = 0;
  std::uint64_t width = 0;
  std::uint32_t type = 0;
  std::uint32_t average = 0;
  std::uint64_t outside = all_are_inside;  // place of an index that is no row
  std::uint64_t count = 0;                 // of the rows that it sends to the other

  bool same_kind(const Told& other) const {
    return rows == other.rows && width == other.width && type == other.type &&
           average == other.average;
  }
  std::string kind() const {
    return fmt::format("{} of {} rows of {} {}", average != 0 ? "the average" : "the sum", rows,
                       width, name_of(static_cast<DType>(type)));
  }
};

std::uint64_t find_outside(const RowsGiven& given) {
  const std::uint64_t* const end = given.indices + given.count;
  const std::uint64_t* const found =
      std::find_if(given.indices, end, [&](std::uint64_t index) { return index >= given.rows; });
  return found == end ? all_are_inside : static_cast<std::uint64_t>(found - given.indices);
}

class RowReduction {
 public:
  RowReduction(const std::shared_ptr<Communicator>& communicator, const RowsGiven& given)
      : communicator_(communicator),
        given_(given),
        rank_(communicator->rank()),
        ranks_(communicator->size()),
        shares_(static_cast<std::size_t>(given.rows), ranks_) {}

  Error run(const RowsWanted& wanted) {
    const std::uint64_t outside = find_outside(given_);
    RowSet own;
    if (outside == all_are_inside) {
      own = sorted_rows(given_.indices, given_.values, given_.count, given_.row, host_);
    }
    Error error = tell(own, outside);
    if (!error) error = add_share(own);
    own = {};
    if (!error) error = gather(wanted);
    return error;
  }

 private:
  std::size_t at(int rank) const { return static_cast<std::size_t>(rank); }
  RowSpan share_of(const RowSet& rows, int rank) const {
    const Range range = shares_[rank];
    return rows.span().part(range.begin, range.begin + range.size, given_.row);
  }
  Bytes bytes_of(const void* data, std::size_t bytes) const {
    return {static_cast<std::byte*>(const_cast<void*>(data)), bytes, MemoryKind::host};
  }
  Error run_alone(Collective collective, const void* send, void* recv, std::size_t each) {
    Group group;
    CollectiveArgs args;
    args.collective = collective;
    args.send = bytes_of(send, 0);
    args.recv = bytes_of(recv, 0);
    args.count = each;
    args.type = DType::u8;
    group.add(communicator_, args, nullptr);
    return group.run();
  }
  void pass(Group& group, int peer, bool sends, const void* data, std::size_t bytes) const {
    if (bytes == 0) return;
    group.add(communicator_, Message{bytes_of(data, bytes), bytes, DType::u8, peer, sends},
              nullptr);
  }
  void send(Group& group, int peer, const RowSpan& rows) const {
    pass(group, peer, true, rows.numbers.data(), rows.numbers.size_bytes());
    pass(group, peer, true, rows.values, rows.count() * given_.row.bytes());
  }
  void receive(Group& group, int peer, std::span<std::uint32_t> numbers, std::byte* values) const {
    pass(group, peer, false, numbers.data(), numbers.size_bytes());
    pass(group, peer, false, values, numbers.size() * given_.row.bytes());
  }

  Error tell(const RowSet& own, std::uint64_t outside) {
    std::vector<Told> mine(at(ranks_));
    for (int r = 0; r < ranks_; ++r) {
      mine[at(r)] = {given_.rows,
                     given_.row.width,
                     static_cast<std::uint32_t>(given_.row.type),
                     given_.average ? 1u : 0u,
                     outside,
                     share_of(own, r).count()};
    }
    told_.resize(at(ranks_));
    Error error = run_alone(Collective::alltoall, mine.data(), told_.data(), sizeof(Told));
    return error ? error : compare();
  }
  // The same result on every rank.
  Error compare() const {
    for (int r = 0; r < ranks_; ++r) {
      if (!told_[at(r)].same_kind(told_[0])) {
        return {Code::invalid_usage,
                fmt::format("rank {} calls for {}, rank 0 for {}, expected the same", r,
                            told_[at(r)].kind(), told_[0].kind())};
      }
    }
    for (int r = 0; r < ranks_; ++r) {
      const std::uint64_t outside = told_[at(r)].outside;
      if (outside == all_are_inside) continue;
      const std::string value = r == rank_ ? fmt::format(" is {}", given_.indices[outside]) : "";
      return {Code::invalid_argument,
              fmt::format("indices[{}] of rank {}{}, expected less than rows, {}", outside, r,
                          value.empty() ? " is no row" : value, given_.rows)};
    }
    return {};
  }

  Error add_share(const RowSet& own) {
    std::vector<RowSet> came(at(ranks_));
    Group group;
    for (int d = 1; d < ranks_; ++d) {
      const int to = wrap(rank_ + d, ranks_);
      const int from = wrap(rank_ - d, ranks_);
      RowSet& rows = came[at(from)];
      rows.numbers.resize(std::min<std::uint64_t>(told_[at(from)].count, shares_[rank_].size));
      rows.values.resize(rows.numbers.size() * given_.row.bytes());
      send(group, to, share_of(own, to));
      receive(group, from, rows.numbers, rows.values.data());
    }
    if (Error error = run(group)) return error;
    std::vector<RowSpan> sets(at(ranks_));
    for (int r = 0; r < ranks_; ++r) {
      sets[at(r)] = r == rank_ ? share_of(own, r) : came[at(r)].span();
      if (Error error = check(sets[at(r)].numbers, shares_[rank_], r)) return error;
    }
    sums_ = sum_rows(sets, given_.row, host_);
    if (!given_.average) return {};
    host_.run<FinishAvgKernel>({sums_.values.data(), sums_.numbers.size() * given_.row.width,
                                given_.row.type, static_cast<float>(ranks_)});
    return {};
  }

  Error gather(const RowsWanted& wanted) {
    const std::uint64_t own = sums_.numbers.size();
    std::vector<std::uint64_t> counts(at(ranks_));
    if (Error error = run_alone(Collective::allgather, &own, counts.data(), sizeof own))
      return error;
    std::size_t all = 0;
    for (int r = 0; r < ranks_; ++r) {
      counts[at(r)] = std::min<std::uint64_t>(counts[at(r)], shares_[r].size);
      all += counts[at(r)];
    }
    *wanted.count = all;
    // Without room the rows of others come all the same, as these wait for them to be taken.
    const bool fits = all <= wanted.capacity;
    std::vector<std::byte> elsewhere(fits ? 0 : all * given_.row.bytes());
    std::byte* const values = fits ? wanted.values : elsewhere.data();
    std::vector<std::uint32_t> numbers(all);
    if (Error error = gather_sums(counts, numbers, values)) return error;
    const std::size_t written = std::min(all, wanted.capacity);
    std::copy_n(numbers.begin(), written, wanted.indices);
    if (fits) return {};
    if (written > 0) std::memcpy(wanted.values, values, written * given_.row.bytes());
    return {Code::invalid_argument,
            fmt::format("capacity is {}, expected room for {} rows", wanted.capacity, all)};
  }
  Error gather_sums(std::span<const std::uint64_t> counts, std::span<std::uint32_t> numbers,
                    std::byte* values) {
    Group group;
    std::size_t begin = 0;
    for (int r = 0; r < ranks_; ++r) {
      const std::span<std::uint32_t> part = numbers.subspan(begin, counts[at(r)]);
      std::byte* const out = values + begin * given_.row.bytes();
      begin += part.size();
      if (r != rank_) {
        send(group, r, sums_.span());
        receive(group, r, part, out);
        continue;
      }
      std::ranges::copy(sums_.numbers, part.begin());
      if (!sums_.values.empty()) std::memcpy(out, sums_.values.data(), sums_.values.size());
    }
    if (Error error = run(group)) return error;
    begin = 0;
    for (int r = 0; r < ranks_; ++r) {
      if (Error error = check(numbers.subspan(begin, counts[at(r)]), shares_[r], r)) return error;
      begin += counts[at(r)];
    }
    return {};
  }
  static Error run(Group& group) { return group.empty() ? Error() : group.run(); }
  // What another rank has sent.
  static Error check(std::span<const std::uint32_t> numbers, Range share, int rank) {
    const bool ascend =
        std::ranges::adjacent_find(numbers, std::greater_equal<>()) == numbers.end();
    const bool inside = numbers.empty() || (numbers.front() >= share.begin &&
                                            numbers.back() - share.begin < share.size);
    if (ascend && inside) return {};
    return {Code::internal, fmt::format("rank {} sent rows that are not of the share", rank), rank};
  }

  std::shared_ptr<Communicator> communicator_;
  const RowsGiven& given_;
  HostCompute host_;
  int rank_;
  int ranks_;
  Blocks shares_;
  std::vector<Told> told_;  // by every rank
  RowSet sums_;             // of this rank's share
};

}  // namespace

Error all_reduce_rows(const std::shared_ptr<Communicator>& communicator, const RowsGiven& given,
                      const RowsWanted& wanted) {
  try {
    return RowReduction(communicator, given).run(wanted);
  } catch (const std::bad_alloc&) {
    communicator->abort();  // the others wait for this rank's part
    throw;
  }
}

}  // namespace pith
