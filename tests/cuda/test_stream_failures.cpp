// Calls on streams that fail, or that nobody reaches: what streams, compressors and memory see.
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
