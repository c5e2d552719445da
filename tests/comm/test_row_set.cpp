// Sets of rows: which rank owns a row, and sums.
#include <cmath>
#include <random>

#include "comm/rows/row_set.hpp"
#include "kernels/host_compute.hpp"
#include "tests/catch.hpp"

using namespace pith;

namespace {

RowSpan span_of(const std::vector<std::uint32_t>& numbers, const std::vector<float>& values) {
  return {numbers, reinterpret_cast<const std::byte*>(values.data())};
}

std::vector<float> values_of(const RowSpan& rows, std::size_t width) {
  const auto* const values = reinterpret_cast<const float*>(rows.values);
  return {values, values + rows.count() * width};
}

std::size_t most_owned(const std::vector<std::uint32_t>& numbers, int ranks) {
  std::vector<std::size_t> owned(static_cast<std::size_t>(ranks));
  for (const std::uint32_t number : numbers) {
    ++owned[static_cast<std::size_t>(owner_of(number, ranks))];
  }
  return *std::ranges::max_element(owned);
}

}  // namespace

// Words by their frequency, as vocabularies have them; every 64th row; all rows.
TEST_CASE("ranks own about equally many rows, whichever there are", "[rows]") {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(0, 1);
  std::vector<std::uint32_t> words;
  for (int i = 0; i < 20000; ++i) {
    words.push_back(static_cast<std::uint32_t>(std::pow(1e6, exponent(random))));
  }
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::vector<std::uint32_t> strided;
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < 10000; ++i) {
    strided.push_back(64 * i);
    all.push_back(i);
  }
  for (const std::vector<std::uint32_t>& numbers : {words, strided, all}) {
    for (const int ranks : {2, 3, 8, 32}) {
      const double even = double(numbers.size()) / ranks;
      INFO(numbers.size() << " rows, " << ranks << " ranks");
      CHECK(double(most_owned(numbers, ranks)) < even + 5 * std::sqrt(even));
    }
  }
}

TEST_CASE("rows are sorted, and those of equal number added", "[rows]") {
  HostCompute compute;
  RowSet memory;
  const std::vector<std::uint64_t> indices = {7, 3, 7, 0};
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  const RowSpan rows = sorted_rows(
      indices.data(), reinterpret_cast<const std::byte*>(values.data()), 4, {2}, compute, memory);
  CHECK(std::vector<std::uint32_t>(rows.numbers.begin(), rows.numbers.end()) ==
        std::vector<std::uint32_t>{0, 3, 7});
  CHECK(values_of(rows, 2) == std::vector<float>{7, 8, 3, 4, 6, 8});
}

TEST_CASE("sums of sets of rows, and their owners' parts of them", "[rows]") {
  HostCompute compute;
  const std::vector<std::uint32_t> a = {1, 4, 5, 6, 9};
  const std::vector<std::uint32_t> b = {0, 4, 5, 9, 12};
  const std::vector<float> ones = {1, 1, 1, 1, 1};
  const std::vector<float> more = {2, 3, 4, 5, 6};
  const std::vector<RowSpan> sets = {span_of(a, ones), span_of({}, {}), span_of(b, more)};
  const RowSet sum = sum_rows(sets, {1}, compute);
  CHECK(sum.numbers == std::vector<std::uint32_t>{0, 1, 4, 5, 6, 9, 12});
  CHECK(values_of(sum.span(), 1) == std::vector<float>{2, 1, 4, 5, 1, 6, 6});

  const std::vector<RowSet> parts = by_owner(sum.span(), 3, {1});
  std::vector<RowSpan> spans;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    for (const std::uint32_t number : parts[r].numbers) CHECK(owner_of(number, 3) == int(r));
    spans.push_back(parts[r].span());
  }
  const RowSet joined = sum_rows(spans, {1}, compute);
  CHECK(joined.numbers == sum.numbers);
  CHECK(joined.values == sum.values);
}
