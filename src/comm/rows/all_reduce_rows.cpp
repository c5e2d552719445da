#include "comm/rows/all_reduce_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/patterns.hpp"
#include "collectives/premultiply.hpp"
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
    const std::string_view name =
        type < dtype_count ? name_of(static_cast<DType>(type)) : "of no known type";
    return fmt::format("{} of {} rows of {} {}", average != 0 ? "the average" : "the sum", rows,
                       width, name);
  }
};

std::uint64_t find_outside(const RowsGiven& given) {
  const std::uint64_t* const end = given.indices + given.count;
  const std::uint64_t* const found =
      std::find_if(given.indices, end, [&](std::uint64_t index) { return index >= given.rows; });
  return found == end ? all_are_inside : static_cast<std::uint64_t>(found - given.indices);
}

Bytes bytes_of(const void* data, std::size_t bytes) {
  return {static_cast<std::byte*>(const_cast<void*>(data)), bytes, MemoryKind::host};
}

class RowReduction {
 public:
  RowReduction(const std::shared_ptr<Communicator>& communicator, const RowsGiven& given)
      : communicator_(communicator),
        given_(given),
        rank_(communicator->rank()),
        ranks_(communicator->size()) {
    averaging_.op = given.average ? Op::avg : Op::sum;
    averaging_.type = given.row.type;
    scale_average(averaging_, ranks_);
  }

  Error run(const RowsWanted& wanted) {
    const std::uint64_t outside = find_outside(given_);
    std::vector<RowSet> own(at(ranks_));
    if (outside == all_are_inside) own = own_by_owner();
    Error error = tell(own, outside);
    if (!error) error = add_own(own);
    if (!error) error = gather(wanted);
    return error;
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  std::vector<RowSet> own_by_owner() {
    const std::byte* values = given_.values;
    std::vector<std::byte> scaled;
    if (averaging_.factor.used && given_.count > 0) {
      scaled.resize(given_.count * given_.row.bytes());
      host_.run<ScaleKernel>({scaled.data(), values, given_.count * given_.row.width,
                              given_.row.type, averaging_.factor.bits});
      values = scaled.data();
    }
    RowSet memory;
    const RowSpan rows =
        sorted_rows(given_.indices, values, given_.count, given_.row, host_, memory);
    return by_owner(rows, ranks_, given_.row);
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
    const Message message{bytes_of(data, bytes), bytes, DType::u8, peer, sends};
    group.add(communicator_, message, nullptr);
  }
  void send(Group& group, int peer, const RowSet& rows) const {
    pass(group, peer, true, rows.numbers.data(), rows.numbers.size() * sizeof(std::uint32_t));
    pass(group, peer, true, rows.values.data(), rows.values.size());
  }
  void receive(Group& group, int peer, std::uint64_t count, RowSet& rows) const {
    rows.numbers.resize(std::min(count, given_.rows));
    rows.values.resize(rows.numbers.size() * given_.row.bytes());
    pass(group, peer, false, rows.numbers.data(), rows.numbers.size() * sizeof(std::uint32_t));
    pass(group, peer, false, rows.values.data(), rows.values.size());
  }

  Error tell(const std::vector<RowSet>& own, std::uint64_t outside) {
    std::vector<Told> mine(at(ranks_));
    for (int r = 0; r < ranks_; ++r) {
      mine[at(r)] = {given_.rows,
                     given_.row.width,
                     static_cast<std::uint32_t>(given_.row.type),
                     given_.average ? 1u : 0u,
                     outside,
                     own[at(r)].numbers.size()};
    }
    told_.resize(at(ranks_));
    Error error = run_alone(Collective::alltoall, mine.data(), told_.data(), sizeof(Told));
    return error ? error : compare();
  }
  // The same result on every rank.
  Error compare() const {
    for (int r = 0; r < ranks_; ++r) {
      if (told_[at(r)].same_kind(told_[0])) continue;
      return {Code::invalid_usage,
              fmt::format("rank {} calls for {}, rank 0 for {}, expected the same", r,
                          told_[at(r)].kind(), told_[0].kind())};
    }
    for (int r = 0; r < ranks_; ++r) {
      const std::uint64_t outside = told_[at(r)].outside;
      if (outside == all_are_inside) continue;
      const std::string found =
          r == rank_ ? fmt::format("is {}", given_.indices[outside]) : "is no row";
      return {Code::invalid_argument,
              fmt::format("indices[{}] of rank {} {}, expected less than rows, {}", outside, r,
                          found, given_.rows)};
    }
    return {};
  }

  // Sends out(rank) to every other rank, receives as many rows of each as it has told, and adds
  // them up in rank order. owner(rank): of the rows that this rank sends.
  template <class Out, class Owner>
  Error trade(const Out& out, const std::vector<std::uint64_t>& counts, const Owner& owner,
              RowSet& sums) {
    std::vector<RowSet> came(at(ranks_));
    Group group;
    for (int d = 1; d < ranks_; ++d) {
      const int to = wrap(rank_ + d, ranks_);
      const int from = wrap(rank_ - d, ranks_);
      send(group, to, out(to));
      receive(group, from, counts[at(from)], came[at(from)]);
    }
    if (Error error = group.empty() ? Error() : group.run()) return error;
    std::vector<RowSpan> sets(at(ranks_));
    for (int r = 0; r < ranks_; ++r) {
      sets[at(r)] = r == rank_ ? out(r).span() : came[at(r)].span();
      if (Error error = check(sets[at(r)].numbers, owner(r), r)) return error;
    }
    sums = sum_rows(sets, given_.row, host_);
    return {};
  }

  // The rows of all ranks that this one owns.
  Error add_own(const std::vector<RowSet>& own) {
    std::vector<std::uint64_t> counts(at(ranks_));
    std::ranges::transform(told_, counts.begin(), &Told::count);
    const auto out = [&](int rank) -> const RowSet& { return own[at(rank)]; };
    Error error = trade(
        out, counts, [this](int) { return rank_; }, sums_);
    if (error || averaging_.op != Op::avg || sums_.numbers.empty()) return error;
    const float divisor = averaging_.divisor != 0 ? averaging_.divisor : static_cast<float>(ranks_);
    host_.run<FinishAvgKernel>(
        {sums_.values.data(), sums_.numbers.size() * given_.row.width, given_.row.type, divisor});
    return {};
  }

  Error gather(const RowsWanted& wanted) {
    const std::uint64_t own = sums_.numbers.size();
    std::vector<std::uint64_t> counts(at(ranks_));
    Error error = run_alone(Collective::allgather, &own, counts.data(), sizeof own);
    if (error) return error;
    RowSet all;
    const auto out = [this](int) -> const RowSet& { return sums_; };
    error = trade(
        out, counts, [](int rank) { return rank; }, all);
    return error ? error : write(all, wanted);
  }
  Error write(const RowSet& sums, const RowsWanted& wanted) const {
    const std::size_t all = sums.numbers.size();
    *wanted.count = all;
    const std::size_t written = std::min(all, wanted.capacity);
    std::copy_n(sums.numbers.begin(), written, wanted.indices);
    if (written > 0) {
      std::memcpy(wanted.values, sums.values.data(), written * given_.row.bytes());
    }
    if (written == all) return {};
    return {Code::invalid_argument,
            fmt::format("capacity is {}, expected room for {} rows", wanted.capacity, all)};
  }

  // What `rank` has sent are rows that `owner` owns.
  Error check(std::span<const std::uint32_t> numbers, int owner, int rank) const {
    const bool ascend =
        std::ranges::adjacent_find(numbers, std::greater_equal<>()) == numbers.end();
    const bool are_owned = std::ranges::all_of(
        numbers, [&](std::uint32_t one) { return owner_of(one, ranks_) == owner; });
    const bool inside = numbers.empty() || numbers.back() < given_.rows;
    if (ascend && are_owned && inside) return {};
    communicator_->abort();
    return {Code::internal, fmt::format("rank {} sent rows that are not its to send", rank), rank};
  }

  std::shared_ptr<Communicator> communicator_;
  const RowsGiven& given_;
  HostCompute host_;
  const int rank_;
  const int ranks_;
  CollectiveArgs averaging_;  // its op, factor and divisor
  std::vector<Told> told_;    // by every rank
  RowSet sums_;               // of the rows that this rank owns
};

}  // namespace

Error all_reduce_rows(const std::shared_ptr<Communicator>& communicator, const RowsGiven& given,
                      const RowsWanted& wanted) {
  try {
    return RowReduction(communicator, given).run(wanted);
  } catch (...) {
    communicator->abort();
    throw;
  }
}

}  // namespace pith
