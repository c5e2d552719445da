// Calls on the default streams: the legacy one, which NULL means where the memory is a device's,
// and the thread's own. Their handles stand for another stream in each context.
#include <array>

#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

const CUstream legacy = reinterpret_cast<CUstream>(kStreamLegacy);
const CUstream per_thread = reinterpret_cast<CUstream>(kStreamPerThread);

// A device each for two ranks of one thread, for they would share one context's default streams.
// No context is current but inside `on`.
class Pair {
 public:
  Pair() {
    OK(cu().ctx_set_current(nullptr));
    REQUIRE(pithCommInitAll(comms.data(), 2, nullptr) == pithSuccess);
    for (std::size_t r = 0; r < 2; ++r) {
      OK(cu().primary_ctx_retain(&contexts_[r], static_cast<CUdevice>(r)));
      on(r, [&] {
        send[r] = std::make_unique<DeviceMemory>(count * 4);
        recv[r] = std::make_unique<DeviceMemory>(count * 4);
      });
    }
  }
  ~Pair() {
    for (const pithComm_t comm : comms) pithCommDestroy(comm);
    for (std::size_t r = 0; r < 2; ++r) {
      on(r, [&] {
        send[r].reset();
        recv[r].reset();
      });
    }
  }
  Pair(const Pair&) = delete;

  template <class Body>
  void on(std::size_t rank, Body body) const {
    OK(cu().ctx_push(contexts_[rank]));
    body();
    CUcontext popped = nullptr;
    OK(cu().ctx_pop(&popped));
  }
  void fill_for(std::size_t r, unsigned round) const {
    fill(*send[r], r, round);
    std::memset(recv[r]->as<void>(), 0x5A, count * 4);
  }
  pithResult_t call(std::size_t r, CUstream stream) const {
    return pithAllReduce(send[r]->as<void>(), recv[r]->as<void>(), count, pithUint32, pithSum,
                         comms[r], stream);
  }
  void finish(CUstream stream) const {
    for (std::size_t r = 0; r < 2; ++r) on(r, [&] { OK(cu().stream_synchronize(stream)); });
  }

  std::array<pithComm_t, 2> comms{};
  std::array<std::unique_ptr<DeviceMemory>, 2> send;
  std::array<std::unique_ptr<DeviceMemory>, 2> recv;

 private:
  std::array<CUcontext, 2> contexts_{};
};

}  // namespace

TEST_CASE("a call on a default stream starts when that of the memory's context gets there") {
  const test::Device device;
  const CUstream stream = GENERATE(as<CUstream>(), nullptr, legacy, per_thread);
  const bool in_group = GENERATE(false, true);
  INFO("stream " << static_cast<void*>(stream) << (in_group ? ", in a group" : ""));
  const Pair pair;
  std::unique_ptr<Words> hold;
  pair.on(0, [&] { hold = std::make_unique<Words>(1); });
  for (unsigned round = 1; round <= 3; ++round) {
    for (std::size_t r = 0; r < 2; ++r) {
      pair.fill_for(r, round);
      pair.on(r, [&] { OK(cu().wait_value64(stream, hold->at(0), round, kWaitValueGeq)); });
    }
    // This thread has no context, or in the last round that of the other rank's device.
    if (in_group) REQUIRE(pithGroupStart() == pithSuccess);
    for (std::size_t r = 0; r < 2; ++r) {
      const auto call = [&] { REQUIRE(pair.call(r, stream) == pithSuccess); };
      if (round < 3) {
        call();
      } else {
        pair.on(1 - r, call);
      }
    }
    if (in_group) REQUIRE(pithGroupEnd() == pithSuccess);
    sleep_ms(5);
    for (std::size_t r = 0; r < 2; ++r) {
      pair.on(r, [&] { CHECK(cu().stream_query(stream) == kErrorNotReady); });
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(pair.recv[r]->as<std::uint32_t>()[i] == 0x5A5A5A5Au);
      }
    }
    (*hold)[0].store(round, std::memory_order_release);
    pair.finish(stream);
    for (std::size_t r = 0; r < 2; ++r) CHECK(holds_sum(*pair.recv[r], 2, round));
  }
  pair.on(0, [&] { hold.reset(); });
}

TEST_CASE("blocking streams and a call on NULL wait for each other") {
  const test::Device device;
  const Pair pair;
  std::array<std::unique_ptr<Stream>, 2> before;
  std::array<std::unique_ptr<Stream>, 2> behind;
  std::unique_ptr<Words> words;
  pair.on(0, [&] { words = std::make_unique<Words>(3); });
  for (std::size_t r = 0; r < 2; ++r) {
    pair.fill_for(r, 1);
    pair.on(r, [&] {
      before[r] = std::make_unique<Stream>(kStreamDefault);
      behind[r] = std::make_unique<Stream>(kStreamDefault);
      OK(cu().wait_value64(*before[r], words->at(0), 1, kWaitValueGeq));
    });
    REQUIRE(pair.call(r, nullptr) == pithSuccess);
    pair.on(r, [&] { OK(cu().write_value64(*behind[r], words->at(1 + r), 1, 0)); });
  }
  sleep_ms(5);
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK((*words)[1 + r].load() == 0);
    CHECK(pair.recv[r]->as<std::uint32_t>()[0] == 0x5A5A5A5Au);
  }
  (*words)[0].store(1, std::memory_order_release);
  for (std::size_t r = 0; r < 2; ++r) {
    pair.on(r, [&] { OK(cu().stream_synchronize(*behind[r])); });
    CHECK(holds_sum(*pair.recv[r], 2, 1));
    pair.on(r, [&] {
      before[r].reset();
      behind[r].reset();
    });
  }
  pair.on(0, [&] { words.reset(); });
}

TEST_CASE("every thread has a stream of its own, in captures too") {
  const test::Device device;
  const Pair pair;
  std::array<CUgraphExec, 2> graphs{};
  for (std::size_t r = 0; r < 2; ++r) {
    // Two threads' streams in one capture: the second follows the first and is joined to it.
    pair.on(r, [&] {
      const Event fork;
      const Event join;
      OK(cu().capture_begin(per_thread, kCaptureRelaxed));
      REQUIRE(pair.call(r, per_thread) == pithSuccess);
      OK(cu().event_record(fork, per_thread));
      std::vector<int> results;
      std::thread([&] {
        pair.on(r, [&] {
          CUstreamCaptureMode mode = kCaptureRelaxed;
          results.push_back(cu().capture_exchange_mode(&mode));
          results.push_back(cu().stream_wait_event(per_thread, fork, 0));
          results.push_back(pithAllReduce(pair.recv[r]->as<void>(), pair.recv[r]->as<void>(), count,
                                          pithUint32, pithSum, pair.comms[r], per_thread));
          results.push_back(cu().event_record(join, per_thread));
        });
      }).join();
      CHECK(results == std::vector<int>(4, 0));
      OK(cu().stream_wait_event(per_thread, join, 0));
      CUgraph graph = nullptr;
      OK(cu().capture_end(per_thread, &graph));
      OK(cu().graph_instantiate(&graphs[r], graph, 0));
      OK(cu().graph_destroy(graph));
    });
  }
  for (unsigned round = 0; round < 20; ++round) {
    for (std::size_t r = 0; r < 2; ++r) {
      pair.fill_for(r, round);
      pair.on(r, [&] { OK(cu().graph_launch(graphs[r], per_thread)); });
    }
    pair.finish(per_thread);
    for (std::size_t r = 0; r < 2; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(pair.recv[r]->as<std::uint32_t>()[i] ==
                2 * (value(0, i, round) + value(1, i, round)));
      }
    }
  }
  for (const CUgraphExec graph : graphs) cu().graph_exec_destroy(graph);
}

TEST_CASE("memory of no context goes to its device's default stream") {
  const test::Device device;
  const Pair pair;
  for (std::size_t r = 0; r < 2; ++r) {
    for (const auto* memory : {&pair.send[r], &pair.recv[r]}) {
      pithStubDisown(device_address((*memory)->as<void>()));
    }
    pair.fill_for(r, 4);
    REQUIRE(pair.call(r, nullptr) == pithSuccess);
  }
  pair.finish(nullptr);
  for (std::size_t r = 0; r < 2; ++r) CHECK(holds_sum(*pair.recv[r], 2, 4));
}

TEST_CASE(
    "without device memory a default stream is the communicator's, or the current context's") {
  const test::Device device;
  const Pair pair;
  std::array<std::vector<std::uint32_t>, 2> data{{{1, 2, 3}, {10, 20, 30}}};
  const auto call = [&](std::size_t r, CUstream stream) {
    return pithAllReduce(data[r].data(), data[r].data(), 3, pithUint32, pithSum, pair.comms[r],
                         stream);
  };
  CHECK(call(0, legacy) == pithInvalidArgument);
  CHECK(says("stands for one of the current context"));
  for (std::size_t r = 0; r < 2; ++r) {
    pair.on(r, [&] { REQUIRE(call(r, per_thread) == pithSuccess); });
  }
  pair.finish(per_thread);
  CHECK(data[0] == std::vector<std::uint32_t>{11, 22, 33});
  for (std::size_t r = 0; r < 2; ++r) REQUIRE(call(r, legacy) == pithSuccess);
  pair.finish(legacy);
  CHECK(data[1] == std::vector<std::uint32_t>{22, 44, 66});
  // And without any stream it is a call of the host.
  REQUIRE(pithGroupStart() == pithSuccess);
  for (std::size_t r = 0; r < 2; ++r) REQUIRE(call(r, nullptr) == pithSuccess);
  REQUIRE(pithGroupEnd() == pithSuccess);
  CHECK(data[1] == std::vector<std::uint32_t>{44, 88, 132});
}

TEST_CASE("a communicator stays on the device of its first call") {
  const test::Device device;
  const Pair pair;
  for (std::size_t r = 0; r < 2; ++r) {
    pair.fill_for(r, 1);
    REQUIRE(pair.call(r, nullptr) == pithSuccess);
  }
  pair.finish(nullptr);
  CHECK(pithAllReduce(pair.send[1]->as<void>(), pair.recv[1]->as<void>(), count, pithUint32,
                      pithSum, pair.comms[0], nullptr) == pithInvalidUsage);
  CHECK(says("another context"));
}

TEST_CASE("the legacy stream is refused while a stream that waits for it is captured") {
  const test::Device device;
  const Pair pair;
  pair.on(0, [&] {
    const Stream captured(kStreamDefault);
    OK(cu().capture_begin(captured, kCaptureRelaxed));
    CHECK(pair.call(0, nullptr) == pithUnhandledCudaError);
    CHECK(says("legacy default stream"));
    CHECK(says("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"));
    CUgraph graph = nullptr;
    static_cast<void>(cu().capture_end(captured, &graph));
    if (graph) cu().graph_destroy(graph);
  });
  for (std::size_t r = 0; r < 2; ++r) {
    pair.fill_for(r, 2);
    REQUIRE(pair.call(r, nullptr) == pithSuccess);
  }
  pair.finish(nullptr);
  CHECK(holds_sum(*pair.recv[0], 2, 2));
}
