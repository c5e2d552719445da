// What ranks tell and send each other in a sum of sparse rows.
#include <cstring>
#include <deque>

#include "comm/rows/row_reduction.hpp"
#include "fuzz_target.hpp"

namespace pith::fuzz {

namespace {

constexpr int ranks = 3;
constexpr int own_rank = 1;
constexpr std::uint64_t rows = 300;
constexpr std::size_t width = 2;

struct Given {
  explicit Given(int rank) {
    for (std::uint64_t i = 0; i < 30; ++i) {
      indices.push_back((i * i * 7 + static_cast<std::uint64_t>(rank) * 11) % rows);
    }
    values.assign(indices.size() * width, 1.5F);
    given = {.rows = rows,
             .row = {width, DType::f32},
             .average = false,
             .indices = indices.data(),
             .values = reinterpret_cast<const std::byte*>(values.data()),
             .count = indices.size()};
  }
  Given(const Given&) = delete;
  std::vector<std::uint64_t> indices;
  std::vector<float> values;
  RowsGiven given;
};

// Fills what is there; zeros once the input is used up.
template <class Value>
void take(Bites& bites, std::span<Value> into) {
  const std::string_view bytes = bites.bytes(into.size_bytes());
  if (!bytes.empty()) std::memcpy(into.data(), bytes.data(), bytes.size());
}

std::vector<RowSet> take_rows(Bites& bites, const RowReduction& reduction,
                              const std::vector<std::uint64_t>& counts) {
  std::vector<RowSet> came(counts.size());
  for (int r = 0; r < ranks; ++r) {
    if (r == own_rank) continue;
    RowSet& set = came[static_cast<std::size_t>(r)];
    set = reduction.room(counts[static_cast<std::size_t>(r)]);
    expect(set.numbers.size() <= rows && set.values.size() == set.numbers.size() * width * 4);
    take(bites, std::span(set.numbers));
    take(bites, std::span(set.values));
  }
  return came;
}

bool is_refused(const Error& error) {
  expect(!error || (error.code() == Code::internal && error.rank() != own_rank));
  return bool(error);
}

void check_result(const RowReduction& reduction) {
  std::uint64_t indices[rows];
  float values[rows * width];
  std::size_t found = 0;
  expect(!reduction.write({indices, reinterpret_cast<std::byte*>(values), rows, &found}));
  expect(found <= rows);
  for (std::size_t i = 0; i < found; ++i) {
    expect(indices[i] < rows && (i == 0 || indices[i] > indices[i - 1]));
  }
}

template <class Value>
void put(std::string& out, const std::vector<Value>& values) {
  const std::span<const Value> all(values);
  out.append(reinterpret_cast<const char*>(all.data()), all.size_bytes());
}

void put(std::string& out, const RowSet& set) {
  put(out, set.numbers);
  put(out, set.values);
}

}  // namespace

// What the others tell this rank, their rows, the numbers of their sums, and these.
void run(std::span<const std::uint8_t> input) {
  Bites bites(input);
  const Given own(own_rank);
  RowReduction reduction(own.given, own_rank, ranks);
  std::vector<RowsTold> told(ranks);
  take(bites, std::span(told));
  told[own_rank] = reduction.told()[own_rank];
  if (const Error error = reduction.hear(told)) {
    expect(error.code() == Code::invalid_usage || error.code() == Code::invalid_argument);
    return;
  }
  if (is_refused(reduction.add(take_rows(bites, reduction, reduction.counts())))) return;
  std::vector<std::uint64_t> counts(ranks);
  take(bites, std::span(counts));
  if (is_refused(reduction.join(take_rows(bites, reduction, counts)))) return;
  check_result(reduction);
}

// An honest sum.
std::vector<std::string> seeds() {
  const Given given[ranks] = {Given(0), Given(1), Given(2)};
  std::deque<RowReduction> all;  // which do not move
  std::vector<std::vector<RowsTold>> told;
  for (int r = 0; r < ranks; ++r) {
    all.emplace_back(given[r].given, r, ranks);
    told.push_back(all.back().told());
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<RowSet> came;
    std::vector<RowsTold> heard;
    for (std::size_t from = 0; from < ranks; ++from) {
      came.push_back(all[from].own(static_cast<int>(r)));
      heard.push_back(told[from][r]);
    }
    expect(!all[r].hear(heard) && !all[r].add(came));
  }
  std::string seed;
  put(seed, std::vector{told[0][own_rank], told[1][own_rank], told[2][own_rank]});
  for (const int r : {0, 2}) put(seed, all[static_cast<std::size_t>(r)].own(own_rank));
  std::vector<std::uint64_t> counts;
  for (const RowReduction& one : all) counts.push_back(one.sums().numbers.size());
  put(seed, counts);
  for (const std::size_t r : {0, 2}) put(seed, all[r].sums());
  return {seed};
}

}  // namespace pith::fuzz
