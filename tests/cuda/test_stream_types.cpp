// Sums on streams by CUDA kernels have the bits of the host's kernels, whatever the type, and ranks
// may be on several devices.

#include "tests/cuda/stream_world.hpp"
#include "tests/kernels/support.hpp"

using namespace pith;
using namespace pith::cuda::test;
using pith::cuda::kSuccess;
using pith::kernels::test::all_types;
using pith::kernels::test::random_elements;

namespace {

constexpr std::size_t ranks = 3;

pithDataType_t api_type(DType type) { return static_cast<pithDataType_t>(type); }

std::vector<std::byte> values_of(DType type, std::size_t rank) {
  return random_elements(type, count * 4 / size_of(type), 0, static_cast<unsigned>(rank + 1));
}

}  // namespace

TEST_CASE("sums on streams have the bits of sums on the host") {
  const Device device;
  const char* algorithm =
      GENERATE("allreduce:ring", "allreduce:recursive_doubling", "allreduce:two_shot");
  World world(ranks, algorithm);
  for (const DType type : all_types) {
    for (const pithRedOp_t op : {pithSum, pithProd, pithMax, pithMin, pithAvg}) {
      const std::size_t elements = count * 4 / size_of(type);
      std::vector<std::vector<std::byte>> host(ranks), expected(ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        host[r] = values_of(type, r);
        expected[r].resize(count * 4);
        std::memcpy(world.ranks[r]->send.as<std::byte>(), host[r].data(), host[r].size());
      }
      REQUIRE(pithGroupStart() == pithSuccess);
      for (std::size_t r = 0; r < ranks; ++r) {
        REQUIRE(pithAllReduce(host[r].data(), expected[r].data(), elements, api_type(type), op,
                              world.ranks[r]->comm, nullptr) == pithSuccess);
      }
      REQUIRE(pithGroupEnd() == pithSuccess);
      for (const auto& rank : world.ranks) {
        REQUIRE(pithAllReduce(rank->send.as<void>(), rank->recv.as<void>(), elements,
                              api_type(type), op, rank->comm,
                              static_cast<cuda::CUstream>(rank->stream)) == pithSuccess);
      }
      world.finish(false);
      INFO(algorithm << " " << name_of(type) << " op " << int(op));
      for (std::size_t r = 0; r < ranks; ++r) {
        REQUIRE(std::memcmp(world.ranks[r]->recv.as<std::byte>(), expected[r].data(),
                            elements * size_of(type)) == 0);
      }
    }
  }
}

TEST_CASE("ranks on different devices add up") {
  const Device first(0);
  std::vector<pithComm_t> comms(2);
  REQUIRE(pithCommInitAll(comms.data(), 2, nullptr) == pithSuccess);
  std::vector<std::unique_ptr<Rank>> on;
  std::vector<std::unique_ptr<Device>> devices;
  for (int d = 0; d < 2; ++d) {
    devices.push_back(std::make_unique<Device>(d));
    on.push_back(std::make_unique<Rank>());
    on.back()->comm = comms[static_cast<std::size_t>(d)];
  }
  Words done(2);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (std::size_t r = 0; r < 2; ++r) {
      OK(cu().ctx_set_current(devices[r]->context));
      fill(on[r]->send, r, static_cast<unsigned>(round));
      REQUIRE(allreduce(*on[r], on[r]->send, on[r]->recv, on[r]->stream) == pithSuccess);
      OK(cu().write_value64(on[r]->stream, done.at(r), round, 0));
    }
    for (std::size_t r = 0; r < 2; ++r) {
      while (done[r].load(std::memory_order_acquire) != round) std::this_thread::yield();
      CHECK(holds_sum(on[r]->recv, 2, static_cast<unsigned>(round)));
    }
  }
  for (const pithComm_t comm : comms) pithCommDestroy(comm);
}
