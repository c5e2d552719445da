// Whether a kernel's first launch blocks while a stream waits for the host: its loading, and the
// allocation of local memory. And what a thread that frees memory blocks.
#include <cstdlib>
#include <cstring>

#include "cuda/kernel_set.hpp"
#include "cuda/kernels/worker.hpp"
#include "tools/gpu/driver_extra.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

constexpr int limit_ms = 150;

// `fact_late` writes a word; `fact_deep` also keeps 8 KiB per thread in local memory, indexed by
// run-time values.
constexpr char late_ptx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry fact_late(.param .u64 where, .param .u64 value)
{
  .reg .b64 %a, %v;
  ld.param.u64 %a, [where];
  ld.param.u64 %v, [value];
  st.release.sys.u64 [%a], %v;
  ret;
}
.visible .entry fact_deep(.param .u64 where, .param .u64 value)
{
  .local .align 8 .b8 depot[8192];
  .reg .b64 %a, %v, %base, %i, %p;
  ld.param.u64 %a, [where];
  ld.param.u64 %v, [value];
  mov.u64 %base, depot;
  and.b64 %i, %v, 1023;
  shl.b64 %i, %i, 3;
  add.u64 %p, %base, %i;
  st.local.u64 [%p], %v;
  xor.b64 %i, %i, 8;
  add.u64 %p, %base, %i;
  st.local.u64 [%p], %a;
  ld.local.u64 %v, [%p];
  st.release.sys.u64 [%a], %v;
  ret;
}
)";

CUfunction unloaded_function(CUlibrary library, const char* name) {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  must(cu().library_kernel(&kernel, library, name), "cuLibraryGetKernel");
  must(cu().kernel_function(&function, kernel), "cuKernelGetFunction");
  return function;
}

CUlibrary load_late() {
  CUlibrary library = nullptr;
  must(cu().library_load(&library, late_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0),
       "cuLibraryLoadData");
  return library;
}

std::string loading_state(const Extra& extra, CUfunction function) {
  int state = -1;
  if (!extra.cuFuncIsLoaded) return "";
  const CUresult result = extra.cuFuncIsLoaded(&state, function);
  if (result != kSuccess) return ", cuFuncIsLoaded " + describe(result);
  return state == 0 ? ", not loaded before" : ", loaded before";
}

CUresult launch(CUfunction function, CUstream stream, CUdeviceptr word) {
  std::uint64_t value = 1;
  void* params[] = {&word, &value};
  return cu().launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
}

// Makes a call while a stream waits; reports whether it returns, and whether its work completes,
// which the word being non-zero shows.
void try_beside(const Gpu& gpu, Held& held, const std::string& name, const Words& words,
                const std::function<CUresult()>& call, const std::string& note = "") {
  stage(name);
  words[0] = 0;
  held.hold();
  const Attempt attempt(gpu.context, call);
  const bool returned = attempt.ended(limit_ms);
  const bool ran = returned && wait_for([&] { return words[0] != 0; }, limit_ms);
  held.let_go();
  const bool ended = attempt.ended(1000);
  say(name.c_str(), "%s%s, %s%s",
      returned ? "returns" : "WAITS for a stream that waits for the host",
      !returned || ran ? "" : ", but what it began WAITS for it",
      ended ? attempt.result().c_str() : "and longer", note.c_str());
  must(cu().ctx_synchronize(), "what that began");
}

struct LaterKernels {
  Words words{1};
  CUstream stream = new_stream();
  CUfunction late, deep;
  LaterKernels() {
    const CUlibrary library = load_late();
    late = unloaded_function(library, "fact_late");
    deep = unloaded_function(library, "fact_deep");
  }
};

// A worker whose blocks find that the stream may go on, and leave.
struct FinishedWorker {
  Words words{4};  // start and end of its stream, a ticket, the board's return
  WorkerArgs args{};
  CUfunction function = nullptr;
  explicit FinishedWorker(CUstream stream) {
    void* ring = nullptr;
    CUdeviceptr board = 0;
    must(cu().host_alloc(&ring, sizeof(StepRing), kHostAllocPortable), "cuMemHostAlloc");
    std::memset(ring, 0, sizeof(StepRing));
    must(cu().mem_alloc(&board, sizeof(WorkerBoard)), "cuMemAlloc");
    must(cu().memset_async(board, 0, sizeof(WorkerBoard), stream), "cuMemsetD8Async");
    must(cu().stream_synchronize(stream), "cuStreamSynchronize");
    const auto word = [this](std::size_t i) {
      return reinterpret_cast<std::uint64_t*>(static_cast<std::uintptr_t>(words.at(i)));
    };
    args.id = 1;
    args.ring = static_cast<StepRing*>(ring);
    args.board = reinterpret_cast<WorkerBoard*>(static_cast<std::uintptr_t>(board));
    args.start = word(0);
    args.end = word(1);
    args.tickets = word(2);
    args.board_free = word(3);
    args.value = args.free_value = 1;
    words[1] = 1;
    const Expected<CUfunction> found = KernelSet::load_worker(cu());
    if (!found) give_up(found.error().message());
    function = *found;
  }
  CUresult launch(CUstream stream) {
    void* params[] = {&args};
    return cu().launch_kernel(function, 8, 1, 1, worker_facts.threads, 1, 1,
                              worker_facts.shared_bytes, stream, params, nullptr);
  }
};

}  // namespace

void probe_lazy_loading() {
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);  // before the driver starts
  const Gpu gpu;
  const Kernels kernels;
  const Extra extra;
  if (over_stub()) {
    say("the first launch", "skipped: the stub has its kernels loaded");
    return;
  }
  const LaterKernels later;
  const std::string state = loading_state(extra, later.late);
  Held held(Holder::wait, kernels);
  const auto launch_late = [&] { return launch(later.late, later.stream, later.words.at(0)); };
  try_beside(gpu, held, "the first launch of a kernel", later.words, launch_late, state);
  try_beside(gpu, held, "its second launch", later.words, launch_late);
}

void probe_local_memory() {
  const Gpu gpu;
  const Kernels kernels;
  const Extra extra;
  Held held(Holder::wait, kernels);
  const Words none(1);
  if (extra.cuCtxSetLimit) {
    try_beside(gpu, held, "cuCtxSetLimit of the stack", none, [&] {
      none[0] = 1;
      return extra.cuCtxSetLimit(kLimitStackSize, 2048);
    });
  } else {
    say("cuCtxSetLimit", "not there");
  }
  if (over_stub()) {
    say("a kernel with 8 KiB a thread", "skipped: the stub knows no local memory");
    return;
  }
  const LaterKernels later;
  for (CUfunction function : {later.late, later.deep}) {
    if (cu().function_load) must(cu().function_load(function), "cuFuncLoad");
  }
  int bytes = -1;
  if (extra.cuFuncGetAttribute) {
    extra.cuFuncGetAttribute(&bytes, kFunctionLocalBytes, later.deep);
  }
  say("local memory of the large kernel", "%d bytes a thread", bytes);
  const auto launch_deep = [&] { return launch(later.deep, later.stream, later.words.at(0)); };
  const auto launch_small = [&] { return launch(later.late, later.stream, later.words.at(0)); };
  try_beside(gpu, held, "the first launch of a kernel with 8 KiB a thread", later.words,
             launch_deep);
  try_beside(gpu, held, "its second launch", later.words, launch_deep);
  try_beside(gpu, held, "then one of a small kernel", later.words, launch_small);
  try_beside(gpu, held, "then one of the large kernel", later.words, launch_deep);
}

void probe_first_worker() {
  const Gpu gpu;
  const Kernels kernels;
  Held held(Holder::wait, kernels);
  const CUstream stream = new_stream();
  FinishedWorker worker(stream);
  const auto launch_worker = [&] { return worker.launch(stream); };
  try_beside(gpu, held, "the first launch of pith_worker", worker.words, launch_worker);
  try_beside(gpu, held, "its second launch", worker.words, launch_worker);
}

// Each call beside its own cuMemFree, so that none is queued behind another.
void probe_under_free() {
  const Gpu gpu;
  const Kernels kernels;
  const Words words(4);
  const CUstream other = new_stream();
  CUevent event = nullptr;
  must(cu().event_create(&event, kEventDisableTiming), "cuEventCreate");
  must(kernels.touch(other, words.at(0), 1), "a kernel");
  must(cu().stream_synchronize(other), "cuStreamSynchronize");
  Held held(Holder::wait, kernels);
  struct Case {
    const char* name;
    std::function<CUresult()> call;
  };
  const Case cases[] = {
      {"cuStreamQuery of the held stream",
       [&] {
         const CUresult result = cu().stream_query(held.stream());
         return result == kErrorNotReady ? kSuccess : result;
       }},
      {"cuStreamQuery of another one", [&] { return cu().stream_query(other); }},
      {"cuEventQuery", [&] { return cu().event_query(event); }},
      {"cuStreamWriteValue64", [&] { return cu().write_value64(other, words.at(1), 1, 0); }},
      {"cuStreamWaitValue64",
       [&] { return cu().wait_value64(other, words.at(2), 0, kWaitValueGeq); }},
      {"cuLaunchKernel", [&] { return kernels.touch(other, words.at(3), 1); }},
      {"cuStreamIsCapturing",
       [&] {
         CUstreamCaptureStatus status = kCaptureNone;
         return cu().capture_status(other, &status);
       }},
  };
  for (const Case& one : cases) {
    CUdeviceptr memory = 0;
    must(cu().mem_alloc(&memory, 1 << 20), "cuMemAlloc");
    stage(std::string(one.name) + " beside cuMemFree");
    held.hold();
    const Attempt freeing(gpu.context, [&] { return cu().mem_free(memory); });
    const bool waits = !freeing.ended(50);
    const Attempt attempt(gpu.context, one.call);
    const bool answered = attempt.ended(limit_ms);
    held.let_go();
    const bool ended = attempt.ended(1000) && freeing.ended(1000);
    say(one.name, "%s, %s%s", answered ? "answers" : "STUCK behind cuMemFree",
        ended ? attempt.result().c_str() : "and longer",
        waits ? "" : "; but cuMemFree did not wait");
  }
}

}  // namespace pith::facts
