// pithAllReduceSparse beside a plain sum, on every link.
#include <cstring>
#include <map>
#include <random>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

// What a rank brings: rows in any order, some of them repeated. Whole numbers, so that sums are
// exact.
struct Rows {
  std::vector<std::uint64_t> indices;
  std::vector<float> values;
};

Rows rows_of(int rank, std::uint64_t rows, std::size_t n, std::size_t width, bool sorted) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 17 * n);
  Rows own;
  for (std::size_t i = 0; i < n; ++i) own.indices.push_back(random() % rows);
  if (sorted) {
    std::sort(own.indices.begin(), own.indices.end());
    own.indices.erase(std::unique(own.indices.begin(), own.indices.end()), own.indices.end());
  }
  for (std::size_t i = 0; i < own.indices.size() * width; ++i) {
    own.values.push_back(static_cast<float>(static_cast<int>(random() % 201) - 100));
  }
  return own;
}

using Sum = std::map<std::uint64_t, std::vector<float>>;

Sum sum_of(int ranks, const std::function<Rows(int)>& of, std::size_t width) {
  Sum sum;
  for (int r = 0; r < ranks; ++r) {
    const Rows one = of(r);
    for (std::size_t i = 0; i < one.indices.size(); ++i) {
      std::vector<float>& row = sum.try_emplace(one.indices[i], width).first->second;
      for (std::size_t w = 0; w < width; ++w) row[w] += one.values[i * width + w];
    }
  }
  return sum;
}

struct Result {
  std::vector<std::uint64_t> indices;
  std::vector<float> values;
  std::size_t n = 0;
};

pithResult_t reduce(const Rows& own, Result& result, std::size_t capacity, std::uint64_t rows,
                    std::size_t width, pithRedOp_t op, pithComm_t comm) {
  result.indices.assign(capacity, 0);
  result.values.assign(capacity * width, -7);
  return pithAllReduceSparse(own.indices.data(), own.values.data(), own.indices.size(),
                             result.indices.data(), result.values.data(), capacity, &result.n, rows,
                             width, pithFloat32, op, comm);
}

void compare(const Result& result, const Sum& expected, std::size_t width, float divisor) {
  ensure(result.n == expected.size(), std::to_string(result.n) + " rows");
  std::size_t i = 0;
  for (const auto& [index, row] : expected) {
    ensure(result.indices[i] == index, "another row");
    for (std::size_t w = 0; w < width; ++w) {
      ensure(result.values[i * width + w] == row[w] / divisor, "another value");
    }
    ++i;
  }
}

void reduce_all_sorts(Rank& self, pithComm_t comm) {
  struct Kind {
    std::uint64_t rows;
    std::size_t n;
    std::size_t width;
  };
  for (const Kind& kind : std::initializer_list<Kind>{{1, 1, 1},
                                                      {2, 5, 3},
                                                      {1000, 0, 4},
                                                      {1000, 700, 1},
                                                      {50, 400, 16},
                                                      {std::uint64_t{1} << 32, 3000, 2}}) {
    for (const bool sorted : {false, true}) {
      const auto of = [&](int rank) {
        const bool idle = rank == 1 && kind.n > 1;  // a rank without rows
        return rows_of(rank, kind.rows, idle ? 0 : kind.n, kind.width, sorted);
      };
      const Sum expected = sum_of(self.size, of, kind.width);
      for (const pithRedOp_t op : {pithSum, pithAvg}) {
        Result result;
        ok(reduce(of(self.rank), result, expected.size(), kind.rows, kind.width, op, comm));
        compare(result, expected, kind.width, op == pithAvg ? static_cast<float>(self.size) : 1);
        self.agree(result.n);
      }
    }
  }
}

}  // namespace

TEST_CASE("sums of sparse rows on every link", "[rows]") {
  for (const Setup& setup : every_link()) {
    for (const int ranks : {1, 3}) {
      INFO(name_of(setup) << ", " << ranks << " ranks");
      CHECK(run(ranks, setup, [](Rank& self) {
              const Comm comm(self.join());
              reduce_all_sorts(self, comm);
            }) == "");
    }
  }
}

TEST_CASE("sums of sparse rows: too little room is told, and holds nobody up", "[rows]") {
  CHECK(run(2, Setup(), [](Rank& self) {
          const Comm comm(self.join());
          const Rows own{{4, 2, 9}, {1, 2, 3}};
          Result result;
          const std::size_t capacity = self.rank == 0 ? 2 : 3;
          const pithResult_t ended = reduce(own, result, capacity, 10, 1, pithSum, comm);
          ensure(result.n == 3, "another number");
          ensure(result.indices[0] == 2 && result.indices[1] == 4, "other rows");
          ensure(result.values[0] == 4 && result.values[1] == 2, "other values");
          if (self.rank == 1) return ok(ended);
          fails(ended, pithInvalidArgument,
                {"pithAllReduceSparse", "capacity is 2, expected room for 3 rows"});
        }) == "");
}

TEST_CASE("sums of sparse rows: bad input is told on every rank, and the next call works",
          "[rows]") {
  CHECK(run(3, Setup(), [](Rank& self) {
          const Comm comm(self.join());
          Rows own{{1, 2}, {1, 2}};
          Result result;
          if (self.rank == 1) own.indices[1] = 10;
          const auto words = self.rank == 1
                                 ? "indices[1] of rank 1 is 10, expected less than rows, 10"
                                 : "indices[1] of rank 1 is no row";
          fails(reduce(own, result, 6, 10, 1, pithSum, comm), pithInvalidArgument,
                {"pithAllReduceSparse", words});
          own.indices[1] = 2;
          const std::uint64_t rows = self.rank == 2 ? 11 : 10;
          fails(reduce(own, result, 6, rows, 1, pithSum, comm), pithInvalidUsage,
                {"rank 2 calls for the sum of 11 rows of 1 float, rank 0 for the sum of 10"});
          ok(reduce(own, result, 6, 10, 1, pithSum, comm));
          ensure(result.n == 2 && result.values[1] == 6, "another sum");
        }) == "");
}

TEST_CASE("sums of sparse rows: what is refused at once", "[rows]") {
  CHECK(run(1, Setup(), [](Rank& self) {
          const Comm comm(self.join());
          const Rows own{{1}, {1}};
          Result result;
          const auto refused = [&](std::uint64_t rows, std::size_t width, pithRedOp_t op,
                                   std::string_view words) {
            fails(reduce(own, result, 1, rows, width, op, comm), pithInvalidArgument, {words});
          };
          refused((std::uint64_t{1} << 32) + 1, 1, pithSum, "rows is 4294967297, expected at most");
          refused(2, 0, pithSum, "width is 0, expected at least 1");
          refused(2, 1, pithMax, "op is pithMax (2), expected pithSum (0) or pithAvg (4)");
          fails(pithAllReduceSparse(nullptr, nullptr, 1, nullptr, nullptr, 0, &result.n, 2, 1,
                                    pithFloat32, pithSum, comm),
                pithInvalidArgument, {"indices is NULL"});
          ok(pithGroupStart());
          fails(reduce(own, result, 1, 2, 1, pithSum, comm), pithInvalidUsage, {"a group is open"});
          fails(pithGroupEnd(), pithInvalidUsage, {"a group is open"});
        }) == "");
}

TEST_CASE("sums of sparse rows in 16 bits and as integers", "[rows]") {
  CHECK(run(2, Setup(), [](Rank& self) {
          const Comm comm(self.join());
          const std::uint64_t indices[] = {3, 3, 0};
          const std::int32_t values[] = {5, 6, 1 + self.rank};
          std::uint64_t sum_indices[3];
          std::int32_t sums[3];
          std::size_t n = 0;
          ok(pithAllReduceSparse(indices, values, 3, sum_indices, sums, 3, &n, 4, 1, pithInt32,
                                 pithSum, comm));
          ensure(n == 2 && sum_indices[0] == 0 && sums[0] == 3 && sums[1] == 22, "another sum");
          const std::uint16_t ones[] = {0x3f80, 0x3f80, 0x3f80};  // bfloat16
          std::uint16_t narrow[3];
          ok(pithAllReduceSparse(indices, ones, 3, sum_indices, narrow, 3, &n, 4, 1, pithBfloat16,
                                 pithAvg, comm));
          ensure(n == 2 && narrow[0] == 0x3f80 && narrow[1] == 0x4000, "another average");
        }) == "");
}

// Sums of 16 and 8 bits may be beyond the type where averages are not.
TEST_CASE("averages of sparse rows are those of pithAllReduce", "[rows]") {
  struct Narrow {
    pithDataType_t type;
    std::size_t bytes;
    std::uint16_t large;
  };
  for (const Narrow& one : {Narrow{pithFloat16, 2, 0x7753},  // 30000
                            Narrow{pithFloat8e4m3, 1, 0x7e}, Narrow{pithFloat8e5m2, 1, 0x7b},
                            Narrow{pithBfloat16, 2, 0x7f00}}) {
    CHECK(run(4, Setup(), [&](Rank& self) {
            const Comm comm(self.join());
            const std::uint64_t index = 3;
            std::uint16_t dense = 0;
            std::uint16_t sparse = 0;
            std::uint64_t found = 0;
            std::size_t n = 0;
            ok(pithAllReduce(&one.large, &dense, 1, one.type, pithAvg, comm, nullptr));
            ok(pithAllReduceSparse(&index, &one.large, 1, &found, &sparse, 1, &n, 5, 1, one.type,
                                   pithAvg, comm));
            ensure(n == 1 && found == 3, "another row");
            ensure(std::memcmp(&dense, &sparse, one.bytes) == 0, std::to_string(sparse));
          }) == "");
  }
}

// The dead rank's part is lost; the others are told in time.
TEST_CASE("sums of sparse rows: a rank dies", "[rows]") {
  Setup setup;
  setup.may_be_killed = true;
  CHECK(run(3, setup, [](Rank& self) {
          const Comm comm(self.join());
          const Rows own = rows_of(self.rank, 1000, 100, 4, false);
          Result result;
          ok(reduce(own, result, 300, 1000, 4, pithSum, comm));
          self.meet();
          if (self.rank == 2) self.die();
          fails(reduce(own, result, 300, 1000, 4, pithSum, comm), pithRemoteError, {"rank 2"});
        }) == "");
}
