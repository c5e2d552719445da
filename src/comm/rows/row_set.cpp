#include "comm/rows/row_set.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/kernel_args.hpp"

namespace pith {

namespace {

// Rows that are added to one by one, each at first as a copy.
class Sums {
 public:
  Sums(RowSet& into, RowType row, Compute& compute) : into_(into), row_(row), compute_(compute) {
    into_.values.resize(into_.numbers.size() * row_.bytes());
    touched_.resize(into_.numbers.size());
  }

  // Adds `count` rows that follow each other here and there.
  void add(std::size_t at, const std::byte* values, std::size_t count) {
    for (std::size_t done = 0; done < count;) {
      const bool adds = touched_[at + done];
      std::size_t alike = 1;
      while (done + alike < count && touched_[at + done + alike] == adds) ++alike;
      put(at + done, values + done * row_.bytes(), alike, adds);
      done += alike;
    }
  }

 private:
  void put(std::size_t at, const std::byte* values, std::size_t count, bool adds) {
    std::byte* const out = into_.values.data() + at * row_.bytes();
    if (adds) {
      compute_.run<ReduceKernel>({out, out, values, count * row_.width, row_.type, Op::sum});
      return;
    }
    std::memcpy(out, values, count * row_.bytes());
    std::fill_n(touched_.begin() + static_cast<std::ptrdiff_t>(at), count, true);
  }

  RowSet& into_;
  RowType row_;
  Compute& compute_;
  std::vector<bool> touched_;
};

bool ascends(const std::uint64_t* indices, std::size_t n) {
  return std::adjacent_find(indices, indices + n, std::greater_equal<>()) == indices + n;
}

// Every number of the sets once, ascending.
std::vector<std::uint32_t> numbers_of(std::span<const RowSpan> sets) {
  std::vector<std::uint32_t> all;
  for (const RowSpan& set : sets) {
    std::vector<std::uint32_t> more;
    more.reserve(all.size() + set.count());
    std::ranges::set_union(all, set.numbers, std::back_inserter(more));
    all = std::move(more);
  }
  return all;
}

}  // namespace

RowSpan sorted_rows(const std::uint64_t* indices, const std::byte* values, std::size_t n,
                    RowType row, Compute& compute, RowSet& memory) {
  if (ascends(indices, n)) {
    memory.numbers.assign(indices, indices + n);
    return {memory.numbers, values};
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [indices](std::size_t i) { return indices[i]; });
  for (const std::size_t i : order) {
    const auto number = static_cast<std::uint32_t>(indices[i]);
    if (memory.numbers.empty() || memory.numbers.back() != number) memory.numbers.push_back(number);
  }
  Sums sums(memory, row, compute);
  std::size_t at = 0;
  for (const std::size_t i : order) {
    while (memory.numbers[at] != indices[i]) ++at;
    sums.add(at, values + i * row.bytes(), 1);
  }
  return memory.span();
}

std::vector<RowSet> by_owner(const RowSpan& rows, int ranks, RowType row) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks));
  for (const std::uint32_t number : rows.numbers) {
    ++counts[static_cast<std::size_t>(owner_of(number, ranks))];
  }
  std::vector<RowSet> sets(counts.size());
  for (std::size_t r = 0; r < sets.size(); ++r) {
    sets[r].numbers.reserve(counts[r]);
    sets[r].values.resize(counts[r] * row.bytes());
  }
  for (std::size_t i = 0; i < rows.count();) {
    const int owner = owner_of(rows.numbers[i], ranks);
    std::size_t end = i + 1;
    while (end < rows.count() && owner_of(rows.numbers[end], ranks) == owner) ++end;
    RowSet& set = sets[static_cast<std::size_t>(owner)];
    std::memcpy(set.values.data() + set.numbers.size() * row.bytes(), rows.values + i * row.bytes(),
                (end - i) * row.bytes());
    const auto more = rows.numbers.subspan(i, end - i);
    set.numbers.insert(set.numbers.end(), more.begin(), more.end());
    i = end;
  }
  return sets;
}

RowSet sum_rows(std::span<const RowSpan> sets, RowType row, Compute& compute) {
  RowSet rows;
  rows.numbers = numbers_of(sets);
  Sums sums(rows, row, compute);
  for (const RowSpan& set : sets) {
    auto at = rows.numbers.begin();
    for (std::size_t done = 0; done < set.count();) {
      at = std::lower_bound(at, rows.numbers.end(), set.numbers[done]);
      std::size_t together = 1;
      while (done + together < set.count() &&
             at + static_cast<std::ptrdiff_t>(together) != rows.numbers.end() &&
             at[static_cast<std::ptrdiff_t>(together)] == set.numbers[done + together]) {
        ++together;
      }
      sums.add(static_cast<std::size_t>(at - rows.numbers.begin()), set.values + done * row.bytes(),
               together);
      done += together;
    }
  }
  return rows;
}

}  // namespace pith
