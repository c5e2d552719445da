// Averages of parameters by gossip through the C API: they meet, and what such calls refuse.
#include <cmath>
#include <vector>

#include "catch.hpp"
#include "compressed.hpp"

using namespace ranks;

namespace {

constexpr std::size_t count = 400;

pithResult_t averaged(const float* send, std::vector<float>& recv, pithRedOp_t op,
                      pithCompressor_t compressor, pithComm_t comm) {
  return pithAllReduceCompressed(send, recv.data(), recv.size(), pithFloat32, op, compressor, comm,
                                 nullptr);
}

void meets(Rank& self, pithComm_t comm) {
  const Compressor compressor("choco:density=0.5,gamma=0.3");
  std::vector<float> x(count, static_cast<float>(self.rank));
  for (int step = 0; step < 150; ++step) {
    ok(averaged(x.data(), x, pithAvg, compressor, comm));
  }
  const float mean = static_cast<float>(self.size - 1) / 2;
  for (const float value : x) ensure(std::fabs(value - mean) < 0.05F, "the ranks have not met");
}

// 0 - 1 - 2 - ...: the first and the last rank have one neighbour each.
void meets_on_a_path(Rank& self, pithComm_t comm) {
  const Compressor compressor("choco:density=0.5,gamma=0.5,graph=stated");
  std::vector<float> x(count, static_cast<float>(self.rank));
  fails(averaged(x.data(), x, pithAvg, compressor, comm), pithInvalidArgument,
        {"no graph is stated, expected its edges by pithCompressorSetGraph"});
  std::vector<int> from, to;
  for (int rank = 1; rank < self.size; ++rank) {
    from.push_back(rank);
    to.push_back(rank - 1);
  }
  ok(pithCompressorSetGraph(compressor, from.data(), to.data(), from.size() - 1));
  fails(averaged(x.data(), x, pithAvg, compressor, comm), pithInvalidArgument,
        {"joins ranks 0 and", "expected one between any two ranks"});
  fails(pithCompressorSetGraph(compressor, from.data(), nullptr, 1), pithInvalidArgument, {"to"});
  fails(pithCompressorSetGraph(compressor, from.data(), from.data(), 1), pithInvalidArgument,
        {"pithCompressorSetGraph: an edge joins 1 and 1"});
  ok(pithCompressorSetGraph(compressor, from.data(), to.data(), from.size()));
  for (int step = 0; step < 300; ++step) {
    ok(averaged(x.data(), x, pithAvg, compressor, comm));
  }
  const float mean = static_cast<float>(self.size - 1) / 2;
  for (const float value : x) ensure(std::fabs(value - mean) < 0.05F, "the ranks have not met");
}

void refused(pithComm_t comm) {
  const Compressor compressor("choco");
  const std::vector<float> send(count, 1.0F);
  std::vector<float> recv(count);
  constexpr auto bad = pithInvalidArgument;
  fails(averaged(send.data(), recv, pithSum, compressor, comm), bad,
        {"choco averages parameters: op is sum, expected avg"});
  fails(averaged(nullptr, recv, pithAvg, compressor, comm), bad,
        {"send is NULL", "expected this rank's parameters"});
  std::vector<std::uint64_t> indices(count);
  std::size_t n = 0;
  fails(pithAllReduceCompressedSparse(send.data(), indices.data(), recv.data(), count, &n, count,
                                      pithFloat32, pithAvg, compressor, comm, nullptr),
        bad, {"the result is sparse, expected a dense one"});
  void* memory = nullptr;
  fails(pithCompressorGetAccumulator(compressor, &memory, count, pithFloat32), bad,
        {"compressor is choco, expected a scheme that sums gradients"});
  ok(averaged(send.data(), recv, pithAvg, compressor, comm));
}

}  // namespace

TEST_CASE("ranks meet by gossip", "[compress]") {
  for (const int ranks : {2, 4}) {
    CHECK(run(ranks, {}, [](Rank& self) {
            const Comm comm(self.join());
            meets(self, comm);
            meets_on_a_path(self, comm);
          }) == "");
  }
}

TEST_CASE("what averages by gossip refuse", "[compress]") {
  CHECK(run(2, {}, [](Rank& self) {
          const Comm comm(self.join());
          refused(comm);
        }) == "");
}
