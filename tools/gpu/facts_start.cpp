// The device, the cost of starting, and what the driver reports about pointers and streams.
#include <algorithm>
#include <cstring>

#include "cuda/kernel_set.hpp"
#include "tools/gpu/driver_facts.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

double us_since(std::uint64_t begin) { return 1e-3 * static_cast<double>(now_ns() - begin); }

int attribute(CUdevice_attribute which) {
  int value = -1;
  cu().device_attribute(&value, which, 0);
  return value;
}

// The caller's cost of one call, on idle streams.
template <class Call>
void tell_cost(const char* name, Call call, CUstream stream) {
  const int rounds = over_stub() ? 50 : 500;
  std::vector<double> us;
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t begin = now_ns();
    const CUresult result = call();
    us.push_back(us_since(begin));
    if (result != kSuccess) {
      say(name, "%s", describe(result).c_str());
      return;
    }
    if (i % 50 == 49) cu().stream_synchronize(stream);
  }
  cu().stream_synchronize(stream);
  say(name, "median %.2f us, 99%% %.2f us", median(us), high(us));
}

std::string type_of(CUdeviceptr address) {
  unsigned type = 0;
  const CUresult result = cu().pointer_attribute(&type, kPointerMemoryType, address);
  return result == kSuccess ? "type " + std::to_string(type) : describe(result);
}

void tell_types(const char* when, CUdeviceptr device, const void* pinned, const void* plain) {
  say((std::string("device memory, ") + when).c_str(), "%s", type_of(device).c_str());
  say((std::string("pinned memory, ") + when).c_str(), "%s", type_of(address_of(pinned)).c_str());
  say((std::string("plain memory, ") + when).c_str(), "%s", type_of(address_of(plain)).c_str());
}

void tell_rate(const char* name, CUstream stream, CUdeviceptr to, CUdeviceptr from,
               std::size_t bytes) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t begin = now_ns();
    must(cu().memcpy_async(to, from, bytes, stream), "cuMemcpyAsync");
    must(cu().stream_synchronize(stream), "cuStreamSynchronize");
    best = std::max(best, static_cast<double>(bytes) / us_since(begin) / 1000);
  }
  say(name, "%.2f GB/s", best);
}

void tell_handle(const char* name, CUstream stream, const Words& words) {
  CUcontext context = nullptr;
  const CUresult found = cu().stream_get_ctx(stream, &context);
  const CUresult wrote = cu().write_value64(stream, words.at(0), 7, 0);
  const CUresult synchronised = cu().stream_synchronize(stream);
  CUstreamCaptureStatus status = kCaptureNone;
  const CUresult capturing = cu().capture_status(stream, &status);
  say(name, "cuStreamGetCtx %s%s; a write %s, done %s; cuStreamIsCapturing %s",
      describe(found).c_str(), context ? "" : " (null)", describe(wrote).c_str(),
      describe(synchronised).c_str(), describe(capturing).c_str());
}

CUstream handle(std::uintptr_t value) { return reinterpret_cast<CUstream>(value); }

}  // namespace

void probe_device() {
  const Gpu gpu;
  char name[128] = "?";
  int version = 0;
  std::size_t free = 0, total = 0;
  cu().device_name(name, sizeof name, 0);
  cu().driver_version(&version);
  cu().mem_get_info(&free, &total);
  say("name", "%s, compute capability %d.%d, %d multiprocessors", name,
      attribute(kDeviceComputeMajor), attribute(kDeviceComputeMinor),
      attribute(kDeviceMultiprocessorCount));
  say("driver", "CUDA %d.%d", version / 1000, version % 1000 / 10);
  say("memory", "%zu MiB free of %zu", free >> 20, total >> 20);
  say("unified addresses", "%d", attribute(kDeviceUnifiedAddressing));
  say("64-bit memory operations", "%d", attribute(kDevice64BitStreamMemOps));
  say("flushes remote writes", "%d", attribute(kDeviceFlushRemoteWrites));
  say("reads pageable memory", "%d", attribute(88));
  say("copy engines", "%d", attribute(40));
  int least = 0, greatest = 0;
  cu().ctx_priority_range(&least, &greatest);
  say("priorities", "%d to %d", least, greatest);
}

void probe_start() {
  std::uint64_t begin = now_ns();
  must(cu().init(0), "cuInit");
  say("cuInit", "%.0f us", us_since(begin));
  begin = now_ns();
  const Gpu gpu;
  say("primary context", "%.0f us", us_since(begin));
  stage("loading Pith's kernels");
  begin = now_ns();
  const Expected<std::unique_ptr<KernelSet>> kernels = KernelSet::load(cu());
  say("loading Pith's kernels", "%.0f us%s%s", us_since(begin), kernels ? "" : ", ",
      kernels ? "" : kernels.error().message());
  begin = now_ns();
  const Expected<CUfunction> worker = KernelSet::load_worker(cu());
  say("loading its workers' kernel", "%.0f us%s%s", us_since(begin), worker ? "" : ", ",
      worker ? "" : worker.error().message());
  begin = now_ns();
  const CUstream stream = new_stream();
  say("a stream", "%.0f us", us_since(begin));
  for (const std::size_t mib : {1, 64, 256}) {
    if (over_stub() && mib > 1) break;  // the stub writes all of it
    stage("memory and copies");
    void* memory = nullptr;
    CUdeviceptr device = 0;
    begin = now_ns();
    must(cu().host_alloc(&memory, mib << 20, kHostAllocPortable), "cuMemHostAlloc");
    say("pinned memory", "%zu MiB in %.0f us", mib, us_since(begin));
    begin = now_ns();
    must(cu().mem_alloc(&device, mib << 20), "cuMemAlloc");
    say("device memory", "%zu MiB in %.0f us", mib, us_since(begin));
    if (mib < 64) continue;
    tell_rate("copies to the device", stream, device, address_of(memory), mib << 20);
    tell_rate("copies from the device", stream, address_of(memory), device, mib << 20);
    tell_rate("copies on the device", stream, device, device + (mib << 19), mib << 19);
  }
}

void probe_costs() {
  const Gpu gpu;
  const Kernels kernels;
  const CUstream stream = new_stream();
  const Words words(2);
  CUdeviceptr memory = 0;
  must(cu().mem_alloc(&memory, 1 << 20), "cuMemAlloc");
  tell_cost(
      "cuLaunchKernel", [&] { return kernels.touch(stream, words.at(0), 1); }, stream);
  tell_cost(
      "cuStreamWriteValue64", [&] { return cu().write_value64(stream, words.at(0), 1, 0); },
      stream);
  tell_cost(
      "cuStreamWaitValue64",
      [&] { return cu().wait_value64(stream, words.at(1), 0, kWaitValueGeq); }, stream);
  tell_cost(
      "cuMemcpyAsync on the device",
      [&] { return cu().memcpy_async(memory, memory + 4096, 4096, stream); }, stream);
  tell_cost(
      "cuPointerGetAttribute",
      [&] {
        unsigned type = 0;
        return cu().pointer_attribute(&type, kPointerMemoryType, memory);
      },
      stream);
  tell_cost(
      "cuStreamGetCtx",
      [&] {
        CUcontext context = nullptr;
        return cu().stream_get_ctx(stream, &context);
      },
      stream);
  tell_cost(
      "cuCtxPushCurrent and pop",
      [&] {
        CUcontext popped = nullptr;
        const CUresult pushed = cu().ctx_push(gpu.context);
        return pushed == kSuccess ? cu().ctx_pop(&popped) : pushed;
      },
      stream);
  tell_cost(
      "cuStreamIsCapturing",
      [&] {
        CUstreamCaptureStatus status = kCaptureNone;
        return cu().capture_status(stream, &status);
      },
      stream);
}

void probe_pointers() {
  std::vector<char> plain(1 << 20);
  say("plain memory, before cuInit", "%s", type_of(address_of(plain.data())).c_str());
  const Gpu gpu;
  const Kernels kernels;
  void* pinned = nullptr;
  CUdeviceptr device = 0;
  must(cu().host_alloc(&pinned, 1 << 20, kHostAllocPortable), "cuMemHostAlloc");
  must(cu().mem_alloc(&device, 1 << 20), "cuMemAlloc");
  tell_types("its context current", device, pinned, plain.data());
  std::thread([&] { tell_types("no context current", device, pinned, plain.data()); }).join();
  must(cu().host_register(plain.data(), plain.size(), kHostRegisterPortable), "cuMemHostRegister");
  say("registered memory", "%s", type_of(address_of(plain.data())).c_str());
  must(cu().host_unregister(plain.data()), "cuMemHostUnregister");
  CUdeviceptr freed = 0;
  must(cu().mem_alloc(&freed, 1 << 20), "cuMemAlloc");
  must(cu().mem_free(freed), "cuMemFree");
  say("freed memory", "%s", type_of(freed).c_str());
  if (over_stub()) {
    say("after a fault", "skipped: the stub has none of this kind");
    return;
  }
  const CUstream stream = new_stream();
  must(kernels.touch(stream, 64, 1), "a kernel that faults");
  say("the fault", "%s", describe(cu().stream_synchronize(stream)).c_str());
  tell_types("after a fault", device, pinned, plain.data());
  say("cuStreamQuery after a fault", "%s", describe(cu().stream_query(stream)).c_str());
}

void probe_streams() {
  const Gpu gpu;
  const Words words(2);
  const CUstream own = new_stream();
  for (const bool current : {true, false}) {
    std::thread([&] {
      cu().ctx_set_current(current ? gpu.context : nullptr);
      const std::string where = current ? ", its context current" : ", no context current";
      stage("stream handles" + where);
      tell_handle(("handle 0" + where).c_str(), nullptr, words);
      tell_handle(("handle 1 (legacy)" + where).c_str(), handle(kStreamLegacy), words);
      tell_handle(("handle 2 (per thread)" + where).c_str(), handle(kStreamPerThread), words);
      tell_handle(("a stream" + where).c_str(), own, words);
    }).join();
  }
  // Whether other streams pass the legacy stream while it waits for the host.
  stage("a legacy stream that waits");
  must(cu().wait_value64(handle(kStreamLegacy), words.at(1), 1, kWaitValueGeq), "a wait");
  words[0] = 0;
  must(cu().write_value64(own, words.at(0), 1, 0), "a write");
  say("a non-blocking stream beside a legacy one that waits", "%s",
      wait_for([&] { return words[0] == 1; }, 200) ? "passes" : "STUCK");
  words[1] = 1;
  must(cu().stream_synchronize(handle(kStreamLegacy)), "the legacy stream");
}

}  // namespace pith::facts
