#include "comm/rows/row_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/premultiply.hpp"
#include "core/kernel_args.hpp"

namespace pith {

namespace {

std::uint64_t find_outside(const RowsGiven& given) {
  const std::uint64_t* const end = given.indices + given.count;
  const std::uint64_t* const found =
      std::find_if(given.indices, end, [&](std::uint64_t index) { return index >= given.rows; });
  return found == end ? RowsTold::all_are_inside
                      : static_cast<std::uint64_t>(found - given.indices);
}

}  // namespace

std::string RowsTold::kind() const {
  const std::string_view name =
      type < dtype_count ? name_of(static_cast<DType>(type)) : "of no known type";
  return fmt::format("{} of {} rows of {} {}", average != 0 ? "the average" : "the sum", rows,
                     width, name);
}

RowReduction::RowReduction(const RowsGiven& given, int rank, int ranks)
    : given_(given), rank_(rank), ranks_(ranks), outside_(find_outside(given)), own_(at(ranks)) {
  averaging_.op = given.average ? Op::avg : Op::sum;
  averaging_.type = given.row.type;
  scale_average(averaging_, ranks_);
  if (outside_ == RowsTold::all_are_inside) own_ = own_by_owner();
}

std::vector<RowSet> RowReduction::own_by_owner() {
  const std::byte* values = given_.values;
  std::vector<std::byte> scaled;
  if (averaging_.factor.used && given_.count > 0) {
    scaled.resize(given_.count * given_.row.bytes());
    host_.run<ScaleKernel>({scaled.data(), values, given_.count * given_.row.width, given_.row.type,
                            averaging_.factor.bits});
    values = scaled.data();
  }
  RowSet memory;
  const RowSpan rows = sorted_rows(given_.indices, values, given_.count, given_.row, host_, memory);
  return by_owner(rows, ranks_, given_.row);
}

std::vector<RowsTold> RowReduction::told() const {
  std::vector<RowsTold> told;
  told.reserve(static_cast<std::size_t>(ranks_));
  for (int r = 0; r < ranks_; ++r) {
    told.push_back({given_.rows, given_.row.width, static_cast<std::uint32_t>(given_.row.type),
                    given_.average ? 1u : 0u, outside_, own(r).numbers.size()});
  }
  return told;
}

Error RowReduction::hear(std::vector<RowsTold> told) {
  told_ = std::move(told);
  for (int r = 0; r < ranks_; ++r) {
    if (told_[at(r)].same_kind(told_[0])) continue;
    return {Code::invalid_usage,
            fmt::format("rank {} calls for {}, rank 0 for {}, expected the same", r,
                        told_[at(r)].kind(), told_[0].kind())};
  }
  for (int r = 0; r < ranks_; ++r) {
    const std::uint64_t outside = told_[at(r)].outside;
    if (outside == RowsTold::all_are_inside) continue;
    const std::string found =
        r == rank_ ? fmt::format("is {}", given_.indices[outside]) : "is no row";
    return {Code::invalid_argument,
            fmt::format("indices[{}] of rank {} {}, expected less than rows, {}", outside, r, found,
                        given_.rows)};
  }
  return {};
}

std::vector<std::uint64_t> RowReduction::counts() const {
  std::vector<std::uint64_t> counts(told_.size());
  std::ranges::transform(told_, counts.begin(), &RowsTold::count);
  return counts;
}

RowSet RowReduction::room(std::uint64_t count) const {
  RowSet rows;
  rows.numbers.resize(std::min(count, given_.rows));
  rows.values.resize(rows.numbers.size() * given_.row.bytes());
  return rows;
}

void RowReduction::append(std::vector<Message>& messages, int peer, bool sends,
                          const RowSet& rows) {
  const auto add = [&](const auto& vector) {
    const std::size_t bytes = std::span(vector).size_bytes();
    if (bytes == 0) return;
    const auto* const data = reinterpret_cast<const std::byte*>(vector.data());
    messages.push_back({{const_cast<std::byte*>(data), bytes}, bytes, DType::u8, peer, sends});
  };
  add(rows.numbers);
  add(rows.values);
}

Error RowReduction::check(std::span<const std::uint32_t> numbers, int owner, int rank) const {
  const bool ascend = std::ranges::adjacent_find(numbers, std::greater_equal<>()) == numbers.end();
  const bool are_owned = std::ranges::all_of(
      numbers, [&](std::uint32_t one) { return owner_of(one, ranks_) == owner; });
  const bool inside = numbers.empty() || numbers.back() < given_.rows;
  if (ascend && are_owned && inside) return {};
  return {Code::internal, fmt::format("rank {} sent rows that are not its to send", rank), rank};
}

template <class Owner>
Error RowReduction::sum(std::span<const RowSet> came, const RowSet& mine, const Owner& owner,
                        RowSet& sums) {
  std::vector<RowSpan> sets(at(ranks_));
  for (int r = 0; r < ranks_; ++r) {
    sets[at(r)] = r == rank_ ? mine.span() : came[at(r)].span();
    if (Error error = check(sets[at(r)].numbers, owner(r), r)) return error;
  }
  sums = sum_rows(sets, given_.row, host_);
  return {};
}

Error RowReduction::add(std::span<const RowSet> came) {
  Error error = sum(
      came, own(rank_), [this](int) { return rank_; }, sums_);
  if (error || averaging_.op != Op::avg || sums_.numbers.empty()) return error;
  const float divisor = averaging_.divisor != 0 ? averaging_.divisor : static_cast<float>(ranks_);
  host_.run<FinishAvgKernel>(
      {sums_.values.data(), sums_.numbers.size() * given_.row.width, given_.row.type, divisor});
  return {};
}

Error RowReduction::join(std::span<const RowSet> came) {
  return sum(
      came, sums_, [](int rank) { return rank; }, all_);
}

Error RowReduction::write(const RowsWanted& wanted) const {
  const std::size_t all = all_.numbers.size();
  *wanted.count = all;
  const std::size_t written = std::min(all, wanted.capacity);
  std::copy_n(all_.numbers.begin(), written, wanted.indices);
  if (written > 0) std::memcpy(wanted.values, all_.values.data(), written * given_.row.bytes());
  if (written == all) return {};
  return {Code::invalid_argument,
          fmt::format("capacity is {}, expected room for {} rows", wanted.capacity, all)};
}

}  // namespace pith
