// Calls on streams that fail, or that nobody reaches: what streams, compressors and memory see.
#include <chrono>

#include "tests/cuda/compressed_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

void wait_until_revoked(pithComm_t comm) {
  for (pithResult_t state = pithSuccess; state == pithSuccess; std::this_thread::yield()) {
    REQUIRE(pithCommGetAsyncError(comm, &state) == pithSuccess);
  }
}

// The residual that a call leaves which delivers nothing.
std::vector<float> with_gradient(std::vector<float> residual, const Values& sent) {
  for (std::size_t i = 0; i < residual.size(); ++i) {
    float added = 0;
    std::memcpy(&added, &sent[4 * i], sizeof added);
    residual[i] += added;
  }
  return residual;
}

}  // namespace

TEST_CASE("a compressed call on a stream keeps its gradient, though its communicator is revoked") {
  const test::Device device;
  constexpr std::size_t count = 5000;
  const bool used = GENERATE(true, false);  // streams have been used before
  const bool grouped = GENERATE(false, true);
  const bool on_host = GENERATE(false, true);
  INFO("used " << used << ", grouped " << grouped << ", on host " << on_host);
  Comms comms(2);
  const Side side(2, "topk:density=0.05,bypass=never", count, pithFloat32);
  const Buffers buffers(2, side.bytes());
  std::vector<float> before(count);
  if (used) {
    issue_on_device(comms, side, buffers, gradients(side, 0), Input::apart, pithSum);
    comms.synchronize();
    before = side.residual(0);
  }
  REQUIRE(pithCommAbort(comms.comms[1]) == pithSuccess);
  comms.comms[1] = nullptr;
  wait_until_revoked(comms.comms[0]);

  Values sent = gradient(0, 1, count, pithFloat32);
  Values got(side.bytes());
  std::memcpy(buffers.send[0]->as<void>(), sent.data(), sent.size());
  const void* from = on_host ? sent.data() : buffers.send[0]->as<void>();
  void* to = on_host ? got.data() : buffers.recv[0]->as<void>();
  if (grouped) REQUIRE(pithGroupStart() == pithSuccess);
  pithResult_t result =
      pithAllReduceCompressed(from, to, count, pithFloat32, pithSum, side.compressors[0],
                              comms.comms[0], *comms.streams[0]);
  if (grouped) {
    REQUIRE(result == pithSuccess);
    result = pithGroupEnd();
  }
  CHECK(result == pithRemoteError);
  OK(cu().stream_synchronize(*comms.streams[0]));
  CHECK(side.residual(0) == with_gradient(before, sent));
  // What is refused for its arguments changes nothing, here as elsewhere.
  CHECK(pithAllReduceCompressed(from, to, count - 1, pithFloat32, pithSum, side.compressors[0],
                                comms.comms[0], *comms.streams[0]) == pithInvalidArgument);
  CHECK(side.residual(0) == with_gradient(before, sent));
}

TEST_CASE("a failed call on host memory holds its stream until no peer touches that") {
  const test::Device device;
  constexpr std::size_t count = 3000;
  setenv("PITH_ALGO", "allreduce:two_shot", 1);
  Comms comms(3);
  unsetenv("PITH_ALGO");
  // Rank 1 is held inside the call, on a device of its own.
  CUcontext second = nullptr;
  OK(cu().primary_ctx_retain(&second, 1));
  OK(cu().ctx_push(second));
  {
    const Stream stream;
    const DeviceMemory theirs(count * 4);
    std::memset(theirs.as<void>(), 0, count * 4);
    std::vector<float> ours(count, 1.0f);
    REQUIRE(pithAllReduce(ours.data(), ours.data(), count, pithFloat32, pithSum, comms.comms[0],
                          *comms.streams[0]) == pithSuccess);
    REQUIRE(pithAllReduce(theirs.as<void>(), theirs.as<void>(), count, pithFloat32, pithSum,
                          comms.comms[1], stream) == pithSuccess);
    sleep_ms(50);
    pithStubPause(true);
    const auto begun = std::chrono::steady_clock::now();
    REQUIRE(pithCommAbort(comms.comms[2]) == pithSuccess);
    comms.comms[2] = nullptr;
    OK(cu().stream_synchronize(*comms.streams[0]));
    const auto held = std::chrono::steady_clock::now() - begun;
    CHECK(held > std::chrono::milliseconds(500));  // the limit is longer; rank 1 did not let go
    pithStubPause(false);
    OK(cu().stream_synchronize(stream));
  }
  CUcontext popped = nullptr;
  OK(cu().ctx_pop(&popped));
}
