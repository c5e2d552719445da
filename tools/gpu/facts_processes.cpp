// Two processes on one device: access to the other one's memory, and the effect of its streams on
// latencies.
#include <algorithm>
#include <cstring>

#include "tools/gpu/driver_facts.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

constexpr std::size_t shared_bytes = std::size_t{1} << 20;

// Indices of the page's flags.
enum Flag { exported, opened, freed, looked, closed, helper_ready, helper_over };

struct Owner {
  Gpu gpu;
  CUstream stream = new_stream();
  CUdeviceptr memory = 0;
  Owner() {
    must(cu().mem_alloc(&memory, shared_bytes), "cuMemAlloc");
    must(cu().memset_async(memory, 0x5A, shared_bytes, stream), "cuMemsetD8Async");
    must(cu().stream_synchronize(stream), "cuStreamSynchronize");
    CUipcMemHandle handle;
    if (!cu().ipc_get_handle) give_up("the driver has no cuIpcGetMemHandle");
    must(cu().ipc_get_handle(&handle, memory), "cuIpcGetMemHandle");
    std::memcpy(page().handle, &handle, sizeof handle);
    signal(exported);
  }
};

CUresult open_other(CUdeviceptr* there) {
  CUipcMemHandle handle;
  std::memcpy(&handle, page().handle, sizeof handle);
  return cu().ipc_open_handle(there, handle, kIpcLazyPeerAccess);
}

// The first word of the mapped memory, read by a copy.
std::string content(CUdeviceptr there, CUstream stream) {
  static const Words words(1);
  words[0] = 0;
  CUresult result = cu().memcpy_async(words.at(0), there, 8, stream);
  if (result == kSuccess) result = cu().stream_synchronize(stream);
  if (result != kSuccess) return describe(result);
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(words[0].load()));
  return text;
}

void map_other() {
  const Gpu gpu;
  const CUstream stream = new_stream();
  await(exported);
  CUdeviceptr there = 0;
  stage("cuIpcOpenMemHandle");
  const std::uint64_t begin = now_ns();
  const CUresult result = open_other(&there);
  say("cuIpcOpenMemHandle", "%s, %.1f us", describe(result).c_str(),
      1e-3 * static_cast<double>(now_ns() - begin));
  if (result != kSuccess) give_up("no memory of other processes");
  say("its content, expected 5a5a5a5a5a5a5a5a", "%s", content(there, stream).c_str());
  const Kernels kernels;
  must(kernels.touch(stream, there, 0x1234), "a kernel that writes there");
  must(cu().stream_synchronize(stream), "that kernel");
  CUdeviceptr again = 0;
  const CUresult second = open_other(&again);
  say("opening it a second time", "%s, %s", describe(second).c_str(),
      again == there ? "the same address" : "another address");
  if (second == kSuccess) say("closing that", "%s", describe(cu().ipc_close_handle(again)).c_str());
  signal(opened);
  await(freed);
  stage("looking at memory that its owner has freed");
  say("its content after its owner has freed it", "%s", content(there, stream).c_str());
  must(cu().ctx_synchronize(), "the context after that look");
  signal(looked);
  stage("cuIpcCloseMemHandle");
  say("closing it then", "%s", describe(cu().ipc_close_handle(there)).c_str());
  say("the context after that", "%s", describe(cu().ctx_synchronize()).c_str());
  signal(closed);
}

// Keeps memory exported until the other process is done.
void own_memory() {
  const Owner owner;
  await(closed);
}

void round_trips(const char* name) {
  const CUstream stream = new_stream(Priority::highest);
  const Kernels kernels;
  const std::uint64_t rounds = over_stub() ? 5 : 100;
  const Words words(2);
  std::vector<double> us;
  stage(std::string(name) + ": waits and writes");
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    must(cu().wait_value64(stream, words.at(0), i, kWaitValueGeq), "cuStreamWaitValue64");
    must(cu().write_value64(stream, words.at(1), i, 0), "cuStreamWriteValue64");
  }
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    const std::uint64_t begin = now_ns();
    words[0] = i;
    while (words[1] < i) std::this_thread::yield();
    us.push_back(1e-3 * static_cast<double>(now_ns() - begin));
  }
  say("host, wait, write, host", "median %.1f us, 99%% %.1f us", median(us), high(us));
  us.clear();
  stage(std::string(name) + ": kernels");
  const Words seen(1);
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    const std::uint64_t begin = now_ns();
    must(kernels.touch(stream, seen.at(0), i), "a kernel");
    while (seen[0] < i) std::this_thread::yield();
    us.push_back(1e-3 * static_cast<double>(now_ns() - begin));
  }
  say("kernel to host", "median %.1f us, 99%% %.1f us", median(us), high(us));
}

void hold_a_stream(Holder holder) {
  const Gpu gpu;
  const Kernels kernels;
  Held held(holder, kernels);
  held.hold();
  signal(helper_ready);
  await(helper_over);
}

void beside(const char* name, void (*body)()) {
  const Helper helper(body);
  const Gpu gpu;
  await(helper_ready);
  page().begun_ns = now_ns();
  round_trips(name);
  signal(helper_over);
}

}  // namespace

void probe_ipc() {
  const Helper helper(map_other);
  const Owner owner;
  await(opened);
  say("what the other one's kernel has written", "%s", content(owner.memory, owner.stream).c_str());
  const std::uint64_t begin = now_ns();
  stage("cuMemFree of memory that another process maps");
  say("cuMemFree of what another process maps", "%s, %.1f us",
      describe(cu().mem_free(owner.memory)).c_str(), 1e-3 * static_cast<double>(now_ns() - begin));
  CUdeviceptr next = 0;
  const CUresult result = cu().mem_alloc(&next, shared_bytes);
  say("the next cuMemAlloc", "%s, %s", describe(result).c_str(),
      next == owner.memory ? "the same address" : "another address");
  must(cu().memset_async(next, 0x77, shared_bytes, owner.stream), "cuMemsetD8Async");
  must(cu().stream_synchronize(owner.stream), "cuStreamSynchronize");
  signal(freed);
  await(closed);
  say("what the next memory then holds, expected 7777777777777777", "%s",
      content(next, owner.stream).c_str());
}

// Whether mapping blocks while a stream waits for the host.
void probe_ipc_blocking() {
  const Helper helper(own_memory);
  const Gpu gpu;
  const Kernels kernels;
  await(exported);
  page().begun_ns = now_ns();
  Held held(Holder::wait, kernels);
  CUdeviceptr there = 0;
  for (const bool opening : {true, false}) {
    const char* name = opening ? "cuIpcOpenMemHandle" : "cuIpcCloseMemHandle";
    stage(name);
    held.hold();
    const Attempt attempt(
        gpu.context, [&] { return opening ? open_other(&there) : cu().ipc_close_handle(there); });
    const bool returned = attempt.ended(300);
    held.let_go();
    const bool ended = attempt.ended(1000);
    say(name, "%s, %s", returned ? "returns" : "WAITS for the held stream",
        ended ? attempt.result().c_str() : "and longer");
  }
  signal(closed);
}

void probe_beside_idle() {
  beside("an idle process", [] {
    const Gpu gpu;
    signal(helper_ready);
    await(helper_over);
  });
}
void probe_beside_wait() {
  beside("a process whose stream waits", [] { hold_a_stream(Holder::wait); });
}
void probe_beside_kernel() {
  beside("a process whose kernel waits", [] { hold_a_stream(Holder::kernel); });
}

}  // namespace pith::facts
