// The checker's data: exact whatever the order of the reduction, and every kind of fault shows.
#include <cstring>
#include <vector>

#include "catch.hpp"
#include "core/dtype.hpp"
#include "kernels/scalar.hpp"
#include "perf/frame/data.hpp"

using namespace pith_perf;

namespace {

constexpr std::size_t count = 300;
constexpr std::int64_t half = 150;
constexpr std::size_t kernel_ops = pith::op_count;  // those that a kernel knows: all but mulsum
using Bytes = std::vector<std::byte>;

Bytes contribution(const Round& round, int rank, std::size_t first = 0) {
  Bytes bytes(count * size_of(round.type));
  fill(bytes.data(), count, rank, first, round);
  return bytes;
}

// Reduces the ranks in the given order with the library's plain kernels, rounding at every step as
// a ring does.
Bytes reduced(const Round& round, const std::vector<int>& order) {
  const auto type = static_cast<pith::DType>(round.type);
  const auto op = static_cast<pith::Op>(*round.op);
  Bytes sum = contribution(round, order[0]);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Bytes other = contribution(round, order[i]);
    Bytes out(sum.size());
    pith::kernels::scalar::reduce(out.data(), sum.data(), other.data(), count, type, op);
    sum = out;
  }
  if (is_logical(op)) {  // of one rank, too
    pith::kernels::scalar::reduce(sum.data(), sum.data(), sum.data(), count, type, pith::Op::lor);
  }
  if (op == pith::Op::avg) {
    pith::kernels::scalar::finish_avg(sum.data(), count, type, static_cast<float>(round.ranks));
  }
  return sum;
}

std::vector<int> order_of(int ranks, bool backwards) {
  std::vector<int> order;
  for (int rank = 0; rank < ranks; ++rank) order.push_back(backwards ? ranks - 1 - rank : rank);
  return order;
}

std::vector<Round> every_round(int ranks) {
  std::vector<Round> rounds;
  for (std::size_t type = 0; type < type_names.size(); ++type) {
    for (std::size_t op = 0; op < kernel_ops; ++op) {
      const Round round = {static_cast<pithDataType_t>(type), static_cast<pithRedOp_t>(op), ranks,
                           3};
      if (is_defined(*round.op, round.type)) rounds.push_back(round);
    }
  }
  return rounds;
}

}  // namespace

TEST_CASE("reductions are as expected, bit for bit, in any order", "[perf]") {
  for (const int ranks : {1, 2, 3, 5, 8, 17, 64}) {
    for (const Round& round : every_round(ranks)) {
      INFO(type_names[round.type] << " " << op_names[*round.op] << ", " << ranks << " ranks");
      for (const bool backwards : {false, true}) {
        const Bytes result = reduced(round, order_of(ranks, backwards));
        CHECK(count_not_reduced(result.data(), count, 0, round) == 0);
      }
    }
  }
}

TEST_CASE("a spoilt bit of a result is found", "[perf]") {
  for (const Round& round : every_round(3)) {
    INFO(type_names[round.type] << " " << op_names[*round.op]);
    Bytes result = reduced(round, order_of(3, false));
    for (const std::size_t element : {std::size_t{0}, count / 2, count - 1}) {
      result[element * size_of(round.type)] ^= std::byte{1};
    }
    CHECK(count_not_reduced(result.data(), count, 0, round) == 3);
  }
}

TEST_CASE("a contribution that is missing or added twice is found", "[perf]") {
  for (const Round& round : every_round(4)) {
    if (*round.op == pithMax || *round.op == pithMin) continue;  // may well not change the result
    const bool may_repeat = *round.op == pithBand || *round.op == pithBor ||
                            *round.op == pithLand || *round.op == pithLor;
    INFO(type_names[round.type] << " " << op_names[*round.op]);
    const Bytes missing = reduced(round, {0, 1, 3});
    CHECK(count_not_reduced(missing.data(), count, 0, round) > 0);
    if (may_repeat) continue;
    const Bytes twice = reduced(round, {0, 1, 2, 2, 3});
    CHECK(count_not_reduced(twice.data(), count, 0, round) > 0);
  }
}

TEST_CASE("premultiplied sums of integers are as expected", "[perf]") {
  const Round round = {pithUint32, mulsum, 3, 5};
  std::vector<std::uint32_t> sum(count, 0);
  for (int rank = 0; rank < round.ranks; ++rank) {
    const Bytes bytes = contribution(round, rank);
    std::uint32_t scalar = 0;
    std::memcpy(&scalar, premultiplier(round.type, rank).data(), sizeof(scalar));
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t value = 0;
      std::memcpy(&value, &bytes[i * sizeof(value)], sizeof(value));
      sum[i] += scalar * value;
    }
  }
  CHECK(count_not_reduced(sum.data(), count, 0, round) == 0);
  sum[7] += 1;
  CHECK(count_not_reduced(sum.data(), count, 0, round) == 1);
}

TEST_CASE("copies differ by rank, by place and by round", "[perf]") {
  for (std::size_t type = 0; type < type_names.size(); ++type) {
    const Round round = {static_cast<pithDataType_t>(type), std::nullopt, 4, 7};
    const Bytes bytes = contribution(round, 2, 5);
    INFO(type_names[type]);
    CHECK(count_not_of(bytes.data(), count, 2, 5, round) == 0);
    CHECK(count_not_of(bytes.data(), count, 1, 5, round) > half);
    CHECK(count_not_of(bytes.data(), count, 2, 6, round) > half);
    Round other = round;
    other.number = 8;
    CHECK(count_not_of(bytes.data(), count, 2, 5, other) > half);
  }
}
