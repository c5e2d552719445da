// Which driver calls block while a stream waits for the host, or while another thread is inside a
// blocking call. Code that has to release the stream must not make these calls.
#include "tools/gpu/driver_facts.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

constexpr int limit_ms = 150;

// Smaller on the stub, which writes all of it.
std::size_t large_bytes() { return std::size_t{over_stub() ? 2u : 256u} << 20; }

// Objects for the calls below; created before any stream waits.
struct Things {
  Things() {
    for (CUdeviceptr& block : blocks) must(cu().mem_alloc(&block, 1 << 20), "cuMemAlloc");
    must(cu().mem_alloc(&large, large_bytes()), "cuMemAlloc");
    must(cu().host_alloc(&pinned, 1 << 20, kHostAllocPortable), "cuMemHostAlloc");
    must(cu().host_alloc(&kept, 1 << 20, kHostAllocPortable), "cuMemHostAlloc");
    must(cu().host_register(registered.data(), registered.size(), kHostRegisterPortable),
         "cuMemHostRegister");
    must(cu().event_create(&event, kEventDisableTiming), "cuEventCreate");
    must(cu().capture_begin(other, kCaptureThreadLocal), "cuStreamBeginCapture");
    must(cu().memset_async(blocks[0], 1, 64, other), "cuMemsetD8Async");
    must(cu().capture_end(other, &graph), "cuStreamEndCapture");
    must(cu().graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
  }
  CUdeviceptr blocks[4] = {};
  CUdeviceptr large = 0;
  void* pinned = nullptr;
  void* kept = nullptr;
  std::vector<char> registered = std::vector<char>(1 << 20);
  std::vector<char> pageable = std::vector<char>(1 << 20);  // registered by a call
  std::vector<char> plain = std::vector<char>(4096);
  CUevent event = nullptr;
  CUstream other = new_stream();
  CUstream highest = new_stream(Priority::highest);
  CUstream unused = new_stream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  Words words{8};
};

struct Call {
  const char* name;
  std::function<CUresult()> call;
};

std::vector<Call> calls_that_make(Things& t, CUstream held) {
  static CUstream stream;
  static CUdeviceptr address;
  static void* memory;
  static CUevent event;
  static CUlibrary library;
  static CUgraphExec exec;
  static CUipcMemHandle handle;
  return {
      {"cuStreamCreate, usual", [] { return cu().stream_create(&stream, kStreamNonBlocking, 0); }},
      {"cuStreamCreate, high", [] { return cu().stream_create(&stream, kStreamNonBlocking, -1); }},
      {"cuEventCreate", [] { return cu().event_create(&event, kEventDisableTiming); }},
      {"cuMemAlloc of 1 MiB", [] { return cu().mem_alloc(&address, 1 << 20); }},
      {"cuMemAlloc of much", [] { return cu().mem_alloc(&address, large_bytes()); }},
      {"cuMemHostAlloc of 1 MiB",
       [] { return cu().host_alloc(&memory, 1 << 20, kHostAllocPortable); }},
      {"cuMemHostRegister",
       [&t] { return cu().host_register(t.pageable.data(), t.pageable.size(), 1); }},
      {"cuLibraryLoadData", [] { return load_library(&library); }},
      {"cuFuncLoad",
       [] {
         CUkernel kernel = nullptr;
         CUfunction function = nullptr;
         if (over_stub()) return kSuccess;
         CUresult result = cu().library_kernel(&kernel, library, "fact_touch");
         if (result == kSuccess) result = cu().kernel_function(&function, kernel);
         if (result == kSuccess && cu().function_load) result = cu().function_load(function);
         return result;
       }},
      {"cuGraphInstantiate", [&t] { return cu().graph_instantiate(&exec, t.graph, 0); }},
      {"cuIpcGetMemHandle",
       [&t] { return cu().ipc_get_handle ? cu().ipc_get_handle(&handle, t.blocks[0]) : 801; }},
      {"cuPointerGetAttribute",
       [&t] {
         unsigned type = 0;
         return cu().pointer_attribute(&type, kPointerMemoryType, t.blocks[0]);
       }},
      {"cuStreamGetCtx of the held stream",
       [held] {
         CUcontext context = nullptr;
         return cu().stream_get_ctx(held, &context);
       }},
  };
}

std::vector<Call> calls_that_end(Things& t) {
  return {
      {"cuMemFree of 1 MiB", [&t] { return cu().mem_free(t.blocks[1]); }},
      {"cuMemFree of much", [&t] { return cu().mem_free(t.large); }},
      {"cuMemFreeHost", [&t] { return cu().host_free(t.pinned); }},
      {"cuMemHostUnregister", [&t] { return cu().host_unregister(t.registered.data()); }},
      {"cuStreamDestroy of an idle one", [&t] { return cu().stream_destroy(t.unused); }},
      {"cuEventDestroy", [&t] { return cu().event_destroy(t.event); }},
  };
}

// Enqueues work on another stream and waits until the device has done it.
CUresult run_and_see(Things& t, CUstream stream, std::size_t word,
                     const std::function<CUresult()>& work) {
  t.words[word] = 0;
  CUresult result = work();
  if (result == kSuccess) result = cu().write_value64(stream, t.words.at(word), 1, 0);
  while (result == kSuccess && t.words[word] == 0) std::this_thread::yield();
  return result;
}

std::vector<Call> calls_that_work(Things& t, const Kernels& kernels, CUstream held) {
  const auto on = [&t](CUstream stream, std::size_t word, std::function<CUresult()> work) {
    return
        [&t, stream, word, work = std::move(work)] { return run_and_see(t, stream, word, work); };
  };
  return {
      {"a write elsewhere, done", on(t.other, 0, [] { return kSuccess; })},
      {"a kernel elsewhere, done",
       on(t.other, 1, [&] { return kernels.touch(t.other, t.words.at(7), 1); })},
      {"a kernel of high priority, done",
       on(t.highest, 2, [&] { return kernels.touch(t.highest, t.words.at(7), 1); })},
      {"a copy on the device, done",
       on(t.other, 3,
          [&t] { return cu().memcpy_async(t.blocks[2], t.blocks[3], 1 << 20, t.other); })},
      {"a copy to pinned memory, done",
       on(t.other, 4,
          [&t] { return cu().memcpy_async(address_of(t.kept), t.blocks[3], 1 << 20, t.other); })},
      {"a copy from pageable memory, done",
       on(t.other, 5,
          [&t] {
            return cu().memcpy_async(t.blocks[3], address_of(t.plain.data()), 4096, t.other);
          })},
      {"a graph elsewhere, done",
       on(t.other, 6, [&t] { return cu().graph_launch(t.exec, t.other); })},
      {"cuEventRecord elsewhere", [&t] { return cu().event_record(t.event, t.other); }},
      {"cuStreamQuery elsewhere", [&t] { return cu().stream_query(t.other); }},
      {"one more write on the held stream",
       [&t, held] { return cu().write_value64(held, t.words.at(7), 2, 0); }},
      {"cuPointerGetAttribute",
       [&t] {
         unsigned type = 0;
         return cu().pointer_attribute(&type, kPointerMemoryType, t.blocks[0]);
       }},
      {"cuMemAlloc", [] {
         static CUdeviceptr address;
         return cu().mem_alloc(&address, 1 << 20);
       }}};
}

// One call after another, each while a stream is held.
void try_each(const Gpu& gpu, Held& held, const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    stage(call.name);
    held.hold();
    const Attempt attempt(gpu.context, call.call);
    if (attempt.ended(limit_ms)) {
      say(call.name, "returns, %s", attempt.result().c_str());
      held.let_go();
      continue;
    }
    held.let_go();
    if (attempt.ended(1000)) {
      say(call.name, "WAITS for the held stream, %s", attempt.result().c_str());
    } else {
      say(call.name, "WAITS, and longer than the held stream");
    }
  }
}

void tell_blocked(Holder holder) {
  const Gpu gpu;
  const Kernels kernels;
  Things things;
  Held held(holder, kernels);
  try_each(gpu, held, calls_that_work(things, kernels, held.stream()));
  try_each(gpu, held, calls_that_make(things, held.stream()));
  try_each(gpu, held, calls_that_end(things));
}

// All calls at once, while one thread is inside a call that waits for the held stream.
void tell_behind(Holder holder, const char* name,
                 const std::function<CUresult(Things& things)>& blocker) {
  const Gpu gpu;
  const Kernels kernels;
  Things things;
  Held held(holder, kernels);
  held.hold();
  stage(name);
  const Attempt blocked(gpu.context, [&] { return blocker(things); });
  const bool waits = !blocked.ended(50);
  say(name, waits ? "waits; behind it:" : "does not wait; beside the held stream:");
  std::vector<std::unique_ptr<Attempt>> attempts;
  const std::vector<Call> calls = calls_that_work(things, kernels, held.stream());
  for (const Call& call : calls) {
    stage(std::string(name) + ", then " + call.name);
    attempts.push_back(std::make_unique<Attempt>(gpu.context, call.call));
    const bool ended = attempts.back()->ended(limit_ms);
    say(call.name, "%s", ended ? attempts.back()->result().c_str() : "STUCK");
  }
  stage(std::string(name) + ", then letting go");
  held.let_go();
  const bool ended = blocked.ended(1000);
  if (waits) say(name, "%s when the stream goes on", ended ? "ends" : "does NOT end");
  attempts.clear();
}

CUresult free_memory(Things& things) { return cu().mem_free(things.blocks[1]); }

}  // namespace

void probe_blocked_by_wait() { tell_blocked(Holder::wait); }
void probe_blocked_by_kernel() { tell_blocked(Holder::kernel); }
void probe_behind_mem_free() { tell_behind(Holder::wait, "cuMemFree", free_memory); }
void probe_behind_free_kernel() { tell_behind(Holder::kernel, "cuMemFree", free_memory); }
void probe_behind_host_free() {
  tell_behind(Holder::wait, "cuMemFreeHost",
              [](Things& things) { return cu().host_free(things.pinned); });
}
void probe_behind_stream_create() {
  tell_behind(Holder::wait, "cuStreamCreate", [](Things&) {
    static CUstream stream;
    return cu().stream_create(&stream, kStreamNonBlocking, 0);
  });
}
void probe_behind_synchronize() {
  tell_behind(Holder::wait, "cuCtxSynchronize", [](Things&) { return cu().ctx_synchronize(); });
}

}  // namespace pith::facts
