// Complex numbers: every reduction against std::complex, with imaginary parts, and what is refused.
#include <complex>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr std::array types = {pithComplex64, pithComplex128};
constexpr std::array<std::size_t, 4> counts = {1, 3, 1021, 40'003};

// What an operation makes of the numbers of the ranks from 0 on. Small whole numbers, so that sums
// and products of five are exact.
template <class Part>
struct Numbers {
  using Number = std::complex<Part>;

  static Number of(int rank, std::size_t i) {
    const std::uint64_t random = mix(i + 1, static_cast<std::uint64_t>(rank) + 7) >> 20;
    return {static_cast<Part>(random % 5) - 2, static_cast<Part>(random / 5 % 5) - 2};
  }
  static Number factor(int rank) { return {static_cast<Part>(rank), Part(-1)}; }

  static Number result(pithRedOp_t op, int ranks, std::size_t i) {
    Number result = op >= pithNumOps ? of(0, i) * factor(0) : of(0, i);
    for (int r = 1; r < ranks; ++r) {
      const Number next = of(r, i);
      if (op == pithProd) {
        result *= next;
      } else {
        result += op >= pithNumOps ? next * factor(r) : next;
      }
    }
    return op == pithAvg ? result / static_cast<Part>(ranks) : result;
  }
};

// The reductions of a communicator by one operation.
template <class Part>
class Reductions {
 public:
  using Number = std::complex<Part>;

  Reductions(Rank& self, pithComm_t comm, pithDataType_t type, pithRedOp_t op, std::size_t count)
      : self_(self), comm_(comm), type_(type), op_(op), count_(count) {
    send_.resize(static_cast<std::size_t>(self.size) * count);
    recv_.resize(send_.size());
    for (std::size_t i = 0; i < send_.size(); ++i) send_[i] = Numbers<Part>::of(self.rank, i);
  }

  void run() {
    const auto rank = static_cast<std::size_t>(self_.rank);
    ok(pithAllReduce(send_.data(), recv_.data(), count_, type_, op_, comm_, nullptr));
    expect(self_.size, 0, count_, "allreduce");
    ok(pithReduce(send_.data(), recv_.data(), count_, type_, op_, 1, comm_, nullptr));
    if (rank == 1) expect(self_.size, 0, count_, "reduce");
    ok(pithReduceScatter(send_.data(), recv_.data(), count_, type_, op_, comm_, nullptr));
    expect(self_.size, rank * count_, count_, "reduce-scatter");
    uneven();
    if (op_ != pithAvg) scans();
    std::vector<Number> in_place = send_;
    ok(pithAllReduce(in_place.data(), in_place.data(), count_, type_, op_, comm_, nullptr));
    recv_ = in_place;
    expect(self_.size, 0, count_, "allreduce in place");
  }

 private:
  void uneven() {
    const auto rank = static_cast<std::size_t>(self_.rank);
    std::vector<std::size_t> sizes(static_cast<std::size_t>(self_.size));
    for (std::size_t r = 0; r < sizes.size(); ++r) sizes[r] = r % 2 == 0 ? count_ / 2 : count_;
    std::size_t before = 0;
    for (std::size_t r = 0; r < rank; ++r) before += sizes[r];
    ok(pithReduceScatterV(send_.data(), recv_.data(), sizes.data(), type_, op_, comm_, nullptr));
    expect(self_.size, before, sizes[rank], "reduce-scatter of uneven blocks");
  }

  void scans() {
    ok(pithScan(send_.data(), recv_.data(), count_, type_, op_, comm_, nullptr));
    expect(self_.rank + 1, 0, count_, "scan");
    ok(pithExScan(send_.data(), recv_.data(), count_, type_, op_, comm_, nullptr));
    if (self_.rank > 0) expect(self_.rank, 0, count_, "exclusive scan");
  }

  // That recv begins with the results of elements [first, first + n).
  void expect(int ranks, std::size_t first, std::size_t n, const char* what) const {
    for (std::size_t i = 0; i < n; ++i) {
      if (recv_[i] == Numbers<Part>::result(op_, ranks, first + i)) continue;
      ensure(false, std::string(what) + ", op " + std::to_string(op_) + ": element " +
                        std::to_string(i) + " of " + std::to_string(n) + " is wrong");
    }
  }

  Rank& self_;
  pithComm_t comm_;
  pithDataType_t type_;
  pithRedOp_t op_;
  std::size_t count_;
  std::vector<Number> send_;
  std::vector<Number> recv_;
};

template <class Part>
void reductions_in(Rank& self, pithComm_t comm, pithDataType_t type) {
  std::complex<Part> factor = Numbers<Part>::factor(self.rank);
  pithRedOp_t scaled = pithSum;
  ok(pithRedOpCreatePreMulSum(&scaled, &factor, type, pithScalarHostImmediate, comm));
  pithRedOp_t scaled_later = pithSum;
  ok(pithRedOpCreatePreMulSum(&scaled_later, &factor, type, pithScalarDevice, comm));
  for (const std::size_t count : counts) {
    for (const pithRedOp_t op : {pithSum, pithProd, pithAvg, scaled, scaled_later}) {
      Reductions<Part>(self, comm, type, op, count).run();
    }
  }
  ok(pithRedOpDestroy(scaled, comm));
  ok(pithRedOpDestroy(scaled_later, comm));
}

void reductions(Rank& self) {
  const Comm comm(self.join());
  reductions_in<float>(self, comm, pithComplex64);
  reductions_in<double>(self, comm, pithComplex128);
}

void sparse_rows(Rank& self) {
  const Comm comm(self.join());
  const std::uint64_t indices[] = {4, 1};
  const std::complex<double> values[] = {{1, 2}, {static_cast<double>(self.rank), -1}};
  std::uint64_t sum_indices[2];
  std::complex<double> sums[2];
  std::size_t n = 0;
  ok(pithAllReduceSparse(indices, values, 2, sum_indices, sums, 2, &n, 5, 1, pithComplex128,
                         pithSum, comm));
  const double size = self.size;
  const std::complex<double> first(size * (size - 1) / 2, -size);
  ensure(n == 2 && sum_indices[0] == 1 && sum_indices[1] == 4, "other rows");
  ensure(sums[0] == first && sums[1] == std::complex<double>(size, 2 * size), "wrong sums");
}

void refusals(Rank& self) {
  const Comm comm(self.join());
  constexpr auto bad = pithInvalidArgument;
  std::complex<double> a[4] = {{1, 2}, {3, 4}};
  std::complex<double> b[16] = {};
  const std::size_t ones[] = {1, 1, 1, 1, 1};
  for (const pithRedOp_t op :
       {pithMax, pithMin, pithBand, pithBor, pithBxor, pithLand, pithLor, pithLxor}) {
    for (const pithDataType_t type : types) {
      const std::string of =
          "(" + std::to_string(op) + ") and type is pithComplex" +
          (type == pithComplex64 ? "64 (12), expected " : "128 (13), expected ") +
          (op < pithBand ? "a type that is not complex" : "an integer type");
      fails(pithAllReduce(a, b, 2, type, op, comm, nullptr), bad, {"pithAllReduce: op is", of});
      fails(pithReduce(a, b, 2, type, op, 0, comm, nullptr), bad, {"pithReduce", of});
      fails(pithReduceScatter(b, a, 1, type, op, comm, nullptr), bad, {"pithReduceScatter", of});
      fails(pithReduceScatterV(b, a, ones, type, op, comm, nullptr), bad, {"ReduceScatterV", of});
      fails(pithScan(a, b, 2, type, op, comm, nullptr), bad, {"pithScan", of});
      fails(pithExScan(a, b, 2, type, op, comm, nullptr), bad, {"pithExScan", of});
    }
  }
  fails(pithScan(a, b, 2, pithComplex64, pithAvg, comm, nullptr), bad, {"op is pithAvg (4)"});

  pithCompressor_t codes = nullptr;
  ok(pithCompressorCreate(&codes, "int8"));
  for (const pithDataType_t type : types) {
    const char* const name = type == pithComplex64 ? "type is complex64, expected float"
                                                   : "type is complex128, expected float";
    fails(pithAllReduceCompressed(a, b, 2, type, pithSum, codes, comm, nullptr), bad, {name});
    fails(pithAllGatherCompressed(a, b, 1, type, codes, comm, nullptr), bad, {name});
    fails(pithBroadcastCompressed(a, b, 1, type, 0, codes, comm, nullptr), bad, {name});
    fails(pithAlltoAllCompressed(b, a, 1, type, codes, comm, nullptr), bad, {name});
  }
  ok(pithCompressorDestroy(codes));

  // Nothing was sent and nothing changed: all ranks go on.
  ok(pithAllReduce(a, b, 2, pithComplex128, pithSum, comm, nullptr));
  ensure(b[1] == a[1] * static_cast<double>(self.size), "a wrong sum after refused calls");
}

// As many bytes, but not the same call.
void pairs_of_floats(Rank& self) {
  const Comm comm(self.join());
  float a[4] = {};
  const bool is_complex = self.rank == 0;
  pithResult_t result = pithAllReduce(
      a, a, is_complex ? 2 : 4, is_complex ? pithComplex64 : pithFloat32, pithSum, comm, nullptr);
  // An eager rank may hear of it in its next call, or the one after it.
  for (int next = 0; result == pithSuccess && next < 2; ++next) result = pithBarrier(comm, nullptr);
  fails(result, pithInvalidUsage, {"complex64", "float"});
  self.meet();
}

TEST_CASE("reductions of complex numbers", "[complex]") {
  for (int size = 2; size <= 5; ++size) {
    INFO(size << " ranks");
    CHECK(run(size, Setup(), reductions) == "");
  }
  Setup threads;
  threads.way = Way::threads;
  CHECK(run(3, threads, reductions) == "");
}

TEST_CASE("sums of sparse rows of complex numbers", "[complex]") {
  CHECK(run(3, Setup(), sparse_rows) == "");
}

TEST_CASE("what complex numbers have not is refused on every rank", "[complex]") {
  CHECK(run(3, Setup(), refusals) == "");
  Setup messages;
  messages.transport = "tcp";
  CHECK(run(2, messages, pairs_of_floats) == "");
}

}  // namespace
