// What a device that fails, or refuses, does to calls and compressors: on the stub, whose faults
// are sticky as those of a driver.
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

bool says(const char* word) {
  const std::string message = pithGetLastError(nullptr);
  UNSCOPED_INFO(message);
  return message.find(word) != std::string::npos;
}

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
