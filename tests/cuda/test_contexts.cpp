// A device is reset, and its next context is where the last one was.
#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

void check_sums(unsigned round) {
  World world(2);
  for (std::size_t r = 0; r < 2; ++r) fill(world.ranks[r]->send, r, round);
  for (const auto& rank : world.ranks) {
    REQUIRE(allreduce(*rank, rank->send, rank->recv, rank->stream) == pithSuccess);
  }
  world.finish();
  for (const auto& rank : world.ranks) CHECK(holds_sum(rank->recv, 2, round));
}

}  // namespace

TEST_CASE("a context is not taken for the one that died at its address") {
  CUcontext context = nullptr;
  pith::cuda::Device* before = nullptr;
  {
    const test::Device device;
    context = device.context;
    before = *pith::cuda::Device::of_context(context);
    REQUIRE(primary_context(cu(), 0));
    check_sums(1);
    pithStubRenewContext();
  }
  const test::Device device;
  REQUIRE(device.context == context);
  // Held anew: it stays when the program lets go of it.
  REQUIRE(primary_context(cu(), 0));
  OK(cu().primary_ctx_release(0));
  unsigned flags = 0;
  int active = 0;
  OK(cu().primary_ctx_state(0, &flags, &active));
  CHECK(active == 1);

  pith::cuda::Device* const now = *pith::cuda::Device::of_context(context);
  CHECK(now != before);
  CHECK(now == *pith::cuda::Device::of_context(context));
  {
    const Stream stream;
    CHECK(now->owns(stream));
    CHECK_FALSE(before->owns(stream));
  }
  check_sums(2);
}
