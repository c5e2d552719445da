// What a device that fails, or refuses, does to calls and compressors: on the stub, whose faults
// are sticky as those of a driver.
#include <array>
#include <bit>

#include "tests/cuda/compressed_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

// The current context fails, and has failed when this returns.
void fail_device() {
  const Stream stream;
  const Words word(1);
  pithStubFailAfter(0);
  OK(cu().write_value64(stream, word.at(0), 1, 0));
  REQUIRE(cu().stream_synchronize(stream) == kErrorLaunchFailed);
}

// Two ranks of one thread, each on a device of its own: what happens to one is not the other's.
class Pair {
 public:
  static constexpr std::size_t count = 6000;

  explicit Pair(const char* algorithm, const char* spec) {
    for (std::size_t r = 0; r < 2; ++r) OK(cu().primary_ctx_retain(&contexts_[r], int(r)));
    if (algorithm) setenv("PITH_ALGO", algorithm, 1);
    setenv("PITH_CHUNK", "4096", 1);
    REQUIRE(pithCommInitAll(comms.data(), 2, nullptr) == pithSuccess);
    unsetenv("PITH_ALGO");
    unsetenv("PITH_CHUNK");
    for (std::size_t r = 0; r < 2; ++r) {
      on(r, [&] {
        streams_[r] = std::make_unique<Stream>();
        send_[r] = std::make_unique<DeviceMemory>(count * sizeof(float));
        recv_[r] = std::make_unique<DeviceMemory>(count * sizeof(float));
      });
      if (spec) REQUIRE(pithCompressorCreate(&compressors[r], spec) == pithSuccess);
    }
  }
  ~Pair() {
    for (const pithComm_t comm : comms) pithCommDestroy(comm);
    for (const pithCompressor_t compressor : compressors) pithCompressorDestroy(compressor);
    for (std::size_t r = 0; r < 2; ++r) {
      on(r, [&] {
        streams_[r].reset();
        send_[r].reset();
        recv_[r].reset();
      });
    }
  }
  Pair(const Pair&) = delete;

  // A call of both ranks, to the end of both streams.
  void call(unsigned step) {
    for (std::size_t r = 0; r < 2; ++r) issue(r, step);
    finish();
  }
  void issue(std::size_t r, unsigned step) {
    const Values sent = gradient(r, step, count, pithFloat32, 1, true);
    std::memcpy(send_[r]->as<void>(), sent.data(), sent.size());
    std::memset(recv_[r]->as<void>(), 0x5A, count * sizeof(float));
    on(r, [&] {
      const pithResult_t result =
          compressors[r] ? pithAllReduceCompressed(send_[r]->as<void>(), recv_[r]->as<void>(),
                                                   count, pithFloat32, pithSum, compressors[r],
                                                   comms[r], *streams_[r])
                         : pithAllReduce(send_[r]->as<void>(), recv_[r]->as<void>(), count,
                                         pithFloat32, pithSum, comms[r], *streams_[r]);
      INFO(pithGetLastError(nullptr));
      const bool heard = struck && r > 0 && result == pithRemoteError;
      REQUIRE((result == pithSuccess || heard));
    });
  }
  void finish() const {
    for (std::size_t r = 0; r < 2; ++r) {
      on(r, [&] { static_cast<void>(cu().stream_synchronize(*streams_[r])); });
    }
  }
  // Rank `r`'s stream waits for a word.
  void hold(std::size_t r, CUdeviceptr word) const {
    OK(cu().wait_value64(*streams_[r], word, 1, kWaitValueGeq));
  }
  std::vector<float> result(std::size_t rank) const {
    const auto* got = recv_[rank]->as<float>();
    return {got, got + count};
  }
  pithResult_t state(std::size_t rank) const {
    pithResult_t state = pithSuccess;
    REQUIRE(pithCommGetAsyncError(comms[rank], &state) == pithSuccess);
    return state;
  }
  std::uint64_t calls(std::size_t rank) const {
    pithCompressorStats_t stats;
    stats.size = sizeof stats;
    pithResult_t result = pithInvalidUsage;
    // The communicator tells of the error before the call lets the compressor go.
    while (result == pithInvalidUsage) {
      result = pithCompressorGetStats(compressors[rank], &stats);
      if (result == pithInvalidUsage) sleep_ms(1);
    }
    REQUIRE(result == pithSuccess);
    return stats.calls;
  }
  template <class Body>
  void on(std::size_t rank, Body body) const {
    OK(cu().ctx_push(contexts_[rank]));
    body();
    CUcontext popped = nullptr;
    OK(cu().ctx_pop(&popped));
  }

  std::array<pithComm_t, 2> comms{};
  std::array<pithCompressor_t, 2> compressors{};
  bool struck = false;  // rank 0: rank 1 may hear of it before it calls

 private:
  std::array<CUcontext, 2> contexts_{};
  std::array<std::unique_ptr<Stream>, 2> streams_;
  std::array<std::unique_ptr<DeviceMemory>, 2> send_;
  std::array<std::unique_ptr<DeviceMemory>, 2> recv_;
};

// Of every operation that rank 0 gives its device in a call, one after the other, what comes of a
// failure there: rank 1 may have the result, or not, but nothing else, and nobody waits for ever.
void strike_everywhere(const char* algorithm, const char* spec, void (*strike)(std::int64_t)) {
  constexpr std::int64_t of_the_gate = 2;  // with these the call begins
  constexpr std::int64_t most = 500;
  std::vector<float> expected;
  std::int64_t at = of_the_gate - 1;
  for (; at < most; ++at) {
    INFO("operation " << at);
    Pair pair(algorithm, spec);
    pair.call(0);
    REQUIRE(pair.state(0) == pithSuccess);
    bool struck = false;
    if (at < of_the_gate) {
      pair.call(1);
      expected = pair.result(1);
      continue;
    }
    pair.on(0, [&] { strike(at); });
    pair.struck = true;
    pair.call(1);
    pair.on(0, [&] { struck = !pithStubIsArmed(); });
    const std::vector<float> got = pair.result(1);
    if (!struck) {
      CHECK(pair.state(0) == pithSuccess);
      CHECK(got == expected);
      break;
    }
    // A stream of a failed device ends at once; the call, when that is noticed.
    while (pair.state(0) == pithSuccess) sleep_ms(1);
    const Values own = gradient(1, 1, Pair::count, pithFloat32, 1, true);
    for (std::size_t i = 0; i < got.size(); ++i) {
      std::uint32_t own_bits = 0;
      std::memcpy(&own_bits, &own[4 * i], sizeof own_bits);
      const auto bits = std::bit_cast<std::uint32_t>(got[i]);
      const bool known = bits == 0x5A5A5A5Au || got[i] == expected[i] || bits == own_bits;
      INFO("element " << i << " is " << got[i] << ", expected " << expected[i]);
      REQUIRE(known);
    }
    pithStubReset();
    if (spec && at == of_the_gate) {
      CHECK(pair.calls(0) == 1);
      CHECK(pair.calls(1) == 1);
    }
  }
  CHECK(at > of_the_gate);
  CHECK(at < most);
}

constexpr std::array specs = {
    "topk:density=0.05,bypass=never",
    "topk:density=0.05,values=bf16,exchange=ring,bypass=never",
    "ar-topk:density=0.05,bypass=never",
    "exdyna:density=0.05,bypass=never",
    "deft:density=0.05,bypass=never",
    "bf16:bypass=never",
    "none",
};
constexpr std::array algorithms = {"allreduce:ring", "allreduce:recursive_doubling",
                                   "allreduce:one_shot", "allreduce:two_shot"};

}  // namespace

TEST_CASE("what a failed device holds is an error between calls, and stays where it is") {
  const test::Device device;
  const Comms comms(2);
  const Side side(2, "topk:density=0.05,values=bf16,bypass=never", 5000, pithFloat32);
  const Buffers buffers(2, side.bytes());
  const std::vector<Values> sent = gradients(side, 0);
  issue_on_device(comms, side, buffers, sent, Input::apart, pithSum);
  comms.synchronize();
  const std::vector<float> before = side.residual(0);
  std::vector<char> saved = side.saved(0);
  const pithCompressor_t compressor = side.compressors[0];
  pithCompressorStats_t stats;
  stats.size = sizeof stats;
  REQUIRE(pithCompressorGetStats(compressor, &stats) == pithSuccess);

  fail_device();
  std::vector<float> out(5000);
  CHECK(pithCompressorGetResidual(compressor, out.data(), out.size()) == pithUnhandledCudaError);
  CHECK(says("CUDA_ERROR_LAUNCH_FAILED"));
  std::size_t bytes = saved.size();
  std::vector<char> other(bytes);
  CHECK(pithCompressorSave(compressor, other.data(), &bytes) == pithUnhandledCudaError);
  CHECK(pithCompressorScale(compressor, 2) == pithUnhandledCudaError);
  CHECK(pithCompressorLoad(compressor, saved.data(), bytes) == pithUnhandledCudaError);
  CHECK(pithCompressorGetStats(compressor, &stats) == pithUnhandledCudaError);
  // A call on host memory would take the residual with it.
  std::vector<float> gradient(5000, 1.0f);
  CHECK(pithAllReduceCompressed(gradient.data(), out.data(), 5000, pithFloat32, pithSum, compressor,
                                comms.comms[0], nullptr) == pithUnhandledCudaError);
  // No device comes back like this; here it shows that nothing was lost on the way.
  pithStubReset();
  CHECK(side.residual(0) == before);
  CHECK(side.saved(0) == saved);
}

TEST_CASE("what a device refuses once does not keep it from the next") {
  const test::Device device;
  const Comms on_device(2);
  const Comms on_host(2);
  constexpr std::size_t count = 30000;
  const char* spec = "topk:density=0.05,bypass=never";
  {
    Twins twins(2, spec, count);
    REQUIRE(step(on_device, on_host, {&twins}, 0) == "");
    const DeviceMemory small(64);
    CHECK(pithCompressorGetResidual(twins.device.compressors[0], small.as<float>(), count) ==
          pithUnhandledCudaError);
    CHECK(says("CUDA_ERROR_INVALID_VALUE"));
    CHECK(step(on_device, on_host, {&twins}, 1) == "");
  }
  // These get the memory that those had: it begins as zeros.
  Twins twins(2, spec, count);
  CHECK(step(on_device, on_host, {&twins}, 2) == "");
}

TEST_CASE("a rank whose device refuses an operation sends nothing of what is not there",
          "[launches]") {
  const test::Device device;
  const char* algorithm = GENERATE(from_range(algorithms));
  INFO(algorithm);
  strike_everywhere(algorithm, nullptr, pithStubRefuseAfter);
}

TEST_CASE("a compressed call of which a device refuses a part fails, and is no step",
          "[launches]") {
  const test::Device device;
  const char* spec = GENERATE(from_range(specs));
  INFO(spec);
  strike_everywhere(nullptr, spec, pithStubRefuseAfter);
}

TEST_CASE("a rank whose device fails sends nothing of what is not there, and ends", "[launches]") {
  const test::Device device;
  const char* algorithm = GENERATE(from_range(algorithms));
  INFO(algorithm);
  strike_everywhere(algorithm, nullptr, pithStubFailAfter);
}

TEST_CASE("a compressed call during which a device fails is no step, and ends", "[launches]") {
  const test::Device device;
  const char* spec = GENERATE(from_range(specs));
  INFO(spec);
  strike_everywhere(nullptr, spec, pithStubFailAfter);
}

TEST_CASE("whoever waits for a kernel is told that the device has failed") {
  const test::Device device;
  DeviceWorld world(1);
  CudaCompute& compute = *world[0].compute;
  const DeviceMemory memory(64);
  const auto copy = [&] {
    return compute.run<pith::CopyKernel>({memory.as<std::byte>(), memory.as<std::byte>() + 32, 32});
  };
  struct : pith::FenceWait {
    bool seen = false;
  } wait;
  wait.fence = copy();
  compute.wait(wait.fence);
  CHECK_FALSE(compute.error());
  pithStubFailAfter(0);
  wait.fence = copy();
  wait.reached = [](pith::FenceWait& self) { static_cast<decltype(wait)&>(self).seen = true; };
  compute.notify(wait);
  while (!wait.seen) {
    compute.progress();
    std::this_thread::yield();
  }
  CHECK(compute.error().code() == pith::Code::cuda);
  compute.wait(copy());  // at once from now on
}

TEST_CASE("a device that fails between calls, or under an accumulator, keeps nobody waiting") {
  const test::Device device;
  Pair pair(nullptr, "topk:density=0.05,bypass=never");
  pair.call(0);
  std::vector<float> out(Pair::count);
  pair.on(0, [] { pithStubFailAfter(0); });
  // The copy itself fails, after it was taken.
  CHECK(pithCompressorGetResidual(pair.compressors[0], out.data(), out.size()) ==
        pithUnhandledCudaError);
  CHECK(pithCommAbort(pair.comms[0]) == pithSuccess);
  pair.comms[0] = nullptr;
  pair.on(1, [] { pithStubFailAfter(0); });
  CHECK(pithCommDestroy(pair.comms[1]) == pithSuccess);
  pair.comms[1] = nullptr;
  pithStubReset();
}

TEST_CASE("abort ends a call that waits for a device which has failed") {
  const test::Device device;
  Pair pair("allreduce:ring", nullptr);
  pair.call(0);
  pair.issue(0, 1);
  sleep_ms(20);  // it waits for rank 1 now
  pair.on(0, [] { pithStubPause(true); });
  pair.issue(1, 1);
  sleep_ms(20);  // and now for its kernels, with nothing left to submit
  pair.on(0, [] {
    const Stream stream;
    const Words word(1);
    pithStubFailAfter(0);
    OK(cu().write_value64(stream, word.at(0), 1, 0));
  });
  for (pithComm_t& comm : pair.comms) {
    CHECK(pithCommAbort(comm) == pithSuccess);
    comm = nullptr;
  }
  pair.finish();
  pithStubReset();
}

TEST_CASE("a call that no stream will reach any more is told to all ranks, and keeps nobody") {
  const test::Device device;
  const char* spec = GENERATE(static_cast<const char*>(nullptr), "topk:density=0.05,bypass=never");
  Pair pair(nullptr, spec);
  pair.call(0);
  const Words hold(1);
  pair.on(0, [&] { pair.hold(0, hold.at(0)); });
  for (std::size_t r = 0; r < 2; ++r) pair.issue(r, 1);
  pair.on(0, fail_device);
  pair.finish();
  while (pair.state(0) == pithSuccess) sleep_ms(1);
  CHECK(pair.state(1) == pithRemoteError);
  for (pithComm_t& comm : pair.comms) {
    CHECK(pithCommDestroy(comm) == pithSuccess);
    comm = nullptr;
  }
  pithStubReset();
}
