// Calls on streams that fail, or that nobody reaches: what streams, compressors and memory see.
#include <chrono>

#include "cuda/stream_gate.hpp"
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

TEST_CASE("what a stream has reached is no call to forget, and others open last") {
  const test::Device device;
  const Stream stream;
  const Stream held;
  const Words hold(1);
  const auto found = pith::cuda::Device::of_stream(stream);
  REQUIRE(found);
  StreamGate gate(**found, nullptr);
  struct Counted : StreamEntry {
    int starts = 0;
    int ends = 0;
    StreamGate* gate = nullptr;
    bool was_open = false;
  };
  Counted reached;
  Counted unreached;
  for (Counted* entry : {&reached, &unreached}) {
    entry->gate = &gate;
    entry->started = [](StreamEntry& self) { ++static_cast<Counted&>(self).starts; };
  }
  OK(cu().wait_value64(held, hold.at(0), 1, kWaitValueGeq));
  REQUIRE_FALSE(gate.enqueue(stream, reached));
  REQUIRE_FALSE(gate.enqueue(held, unreached));
  gate.publish(reached);
  gate.publish(unreached);
  while (reached.slot->started() < reached.value) std::this_thread::yield();
  gate.abandon([](StreamEntry& self) {
    auto& entry = static_cast<Counted&>(self);
    ++entry.ends;
    entry.was_open = std::atomic_ref(entry.slot->end).load() >= entry.value;
    StreamGate::open(entry);
    entry.gate->close(entry);
  });
  CHECK((reached.starts == 1 && reached.ends == 0));
  CHECK((unreached.starts == 0 && unreached.ends == 1));
  CHECK_FALSE(unreached.was_open);
  hold[0].store(1, std::memory_order_release);
  OK(cu().stream_synchronize(held));
  StreamGate::open(reached);
  gate.close(reached);
  OK(cu().stream_synchronize(stream));
}

TEST_CASE("a compressor is free once a stream has passed a call that was forgotten") {
  const test::Device device;
  constexpr std::size_t count = 2000;
  for (int round = 0; round < 20; ++round) {
    Comms comms(2);
    const Side side(2, "topk:density=0.05,bypass=never", count, pithFloat32);
    const Buffers buffers(2, side.bytes());
    const Words hold(1);
    OK(cu().wait_value64(*comms.streams[0], hold.at(0), 1, kWaitValueGeq));
    std::memset(buffers.send[0]->as<void>(), 0, side.bytes());
    REQUIRE(pithAllReduceCompressed(buffers.send[0]->as<void>(), buffers.recv[0]->as<void>(), count,
                                    pithFloat32, pithSum, side.compressors[0], comms.comms[0],
                                    *comms.streams[0]) == pithSuccess);
    pithResult_t aborted = pithInternalError;
    std::thread aborting([&] {
      aborted = pithCommAbort(comms.comms[0]);
      comms.comms[0] = nullptr;
    });
    hold[0].store(1, std::memory_order_release);
    OK(cu().stream_synchronize(*comms.streams[0]));
    CHECK(side.residual(0) == std::vector<float>(count));
    aborting.join();
    CHECK(aborted == pithSuccess);
  }
}

TEST_CASE("lists that are too long are refused before their stream gets there") {
  const test::Device device;
  const char* scheme = GENERATE("ar-topk", "exdyna", "deft");
  const bool grouped = GENERATE(false, true);
  INFO(scheme);
  const Comms comms(1);
  const DeviceMemory memory(64);
  constexpr std::size_t count = std::size_t{3} << 30;
  pithCompressor_t compressor = nullptr;
  const std::string spec = std::string(scheme) + ":density=0.9,bypass=never";
  REQUIRE(pithCompressorCreate(&compressor, spec.c_str()) == pithSuccess);
  if (grouped) REQUIRE(pithGroupStart() == pithSuccess);
  pithResult_t result =
      pithAllReduceCompressed(memory.as<void>(), memory.as<void>(), count, pithFloat32, pithSum,
                              compressor, comms.comms[0], *comms.streams[0]);
  if (grouped) {
    REQUIRE(result == pithSuccess);
    result = pithGroupEnd();
  }
  CHECK(result == pithInvalidArgument);
  CHECK(says("a lower density"));
  float out = 0;
  CHECK(pithCompressorGetResidual(compressor, &out, 1) == pithInvalidUsage);  // nothing has begun
  CHECK(pithCompressorDestroy(compressor) == pithSuccess);
}
