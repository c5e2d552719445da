// Start-up, devices, contexts, counters and the rules about calls from host functions.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

constexpr int driver_version = 13000;
constexpr std::uint64_t total_bytes = 16ull << 30;

thread_local std::vector<CUcontext> context_stack;
thread_local int callback_depth = 0;

long number_from_environment(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::strtol(text, nullptr, 10) : otherwise;
}

StubQueues queues_from_environment() {
  const long connections = number_from_environment("CUDA_DEVICE_MAX_CONNECTIONS", 0);
  return {.connections = static_cast<std::size_t>(connections)};
}

void count(Call call) {
  AtomicCounters& counters = state().counters;
  switch (call) {
    case Call::alloc:
      ++counters.allocs;
      break;
    case Call::free:
      ++counters.frees;
      break;
    case Call::sync:
      ++counters.syncs;
      break;
    case Call::query:
      ++counters.queries;
      break;
    case Call::launch:
      ++counters.launches;
      break;
    case Call::graph_launch:
      ++counters.graph_launches;
      break;
    case Call::other:
      break;
  }
}

CUcontext context_of(CUdevice device) {
  std::lock_guard lock(state().mutex);
  if (device < 0 || static_cast<std::size_t>(device) >= state().contexts.size()) return nullptr;
  return &state().contexts[static_cast<std::size_t>(device)];
}

// Synchronising a context that captures is wrong in every mode.
bool invalidate_captures_of(CUcontext context) {
  std::lock_guard lock(state().mutex);
  bool any = false;
  for (const auto& capture : state().captures) {
    if (capture->origin->context != context) continue;
    invalidate(*capture);
    any = true;
  }
  return any;
}

}  // namespace

State& state() {
  static State* const only = new State;
  return *only;
}

CUcontext current_context() { return context_stack.empty() ? nullptr : context_stack.back(); }

bool in_callback() { return callback_depth > 0; }

void run_callback(void (*function)(void*), void* argument) {
  ++callback_depth;
  function(argument);
  --callback_depth;
}

void wait_for_the_lock(Call call) {
  const auto keeps_out = [call](Locks locks) {
    return locks == Locks::all || (locks == Locks::all_but_queries && call != Call::query);
  };
  while (keeps_out(state().locks) && state().freeing > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

CUresult enter(Call call) {
  {
    std::lock_guard lock(state().mutex);
    if (!state().initialised) return kErrorNotInitialized;
  }
  count(call);
  if (!in_callback()) {
    if (call != Call::sync) wait_for_the_lock(call);
    return kSuccess;
  }
  ++state().counters.from_host_functions;
  const Strict strict = state().strict;
  if (strict == Strict::abort) {
    std::fprintf(stderr, "cuda stub: a CUDA call was made inside a host function or kernel\n");
    std::abort();
  }
  return strict == Strict::fail ? kErrorNotPermitted : kSuccess;
}

extern "C" {

CUresult cuInit(unsigned flags) {
  if (flags != 0) return kErrorInvalidValue;
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.initialised) return kSuccess;
  const long devices = number_from_environment("PITH_CUDA_STUB_DEVICES", 2);
  if (devices <= 0) return kErrorNoDevice;
  const long strict = number_from_environment("PITH_CUDA_STUB_STRICT", 0);
  s.strict = strict >= 2 ? Strict::abort : strict == 1 ? Strict::fail : Strict::count;
  s.host_limit_ms = number_from_environment("PITH_CUDA_STUB_HOST_MS", 100);
  s.queues = queues_from_environment();
  s.maps_memory = number_from_environment("PITH_CUDA_STUB_MAPS", 1) != 0;
  s.launches_block = number_from_environment("CUDA_LAUNCH_BLOCKING", 0) != 0;
  s.peers_reach = number_from_environment("PITH_CUDA_STUB_PEERS", 1) != 0;
  for (long i = 0; i < devices; ++i) {
    CUctx_st& context = s.contexts.emplace_back();
    context.device = static_cast<int>(i);
    context.id = ++s.contexts_made;
  }
  s.initialised = true;
  return kSuccess;
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return kErrorInvalidValue;
  *version = driver_version;
  return kSuccess;
}

CUresult cuDeviceGetCount(int* devices) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  *devices = static_cast<int>(state().contexts.size());
  return kSuccess;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (context_of(ordinal) == nullptr) return kErrorInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (context_of(device) == nullptr) return kErrorInvalidDevice;
  switch (attribute) {
    case kDeviceMaxThreadsPerBlock:
      *value = 1024;
      break;
    case kDeviceWarpSize:
      *value = 32;
      break;
    case kDeviceMultiprocessorCount:
      *value = 4;
      break;
    case kDeviceComputeMajor:
      *value = 9;
      break;
    case kDeviceCanMapHostMemory:
    case kDeviceUnifiedAddressing:
    case kDeviceHostPointerForRegistered:
    case kDeviceFlushRemoteWrites:
    case kDevice64BitStreamMemOps:
    case kDeviceWaitValueNor:
    case kDeviceReachedByNetwork:
    case kDeviceExportsDmaBufs:
    case kDeviceNetworkFlushes:  // which it needs, for it says nothing of order
      *value = 1;
      break;
    case kDeviceMapsMemory:
    case kDeviceExportsDescriptors:
    case kDeviceNetworkReachesMapped:
      *value = state().maps_memory ? 1 : 0;
      break;
    default:
      *value = 0;
      break;
  }
  return kSuccess;
}

CUresult cuFlushGPUDirectRDMAWrites(int target, int scope) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (target != kNetworkWritesOfContext || scope != kNetworkWritesToOwner)
    return kErrorInvalidValue;
  ++state().counters.network_flushes;
  return kSuccess;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (context_of(device) == nullptr) return kErrorInvalidDevice;
  if (length <= 0) return kErrorInvalidValue;
  std::snprintf(name, static_cast<std::size_t>(length), "Pith stub device");
  return kSuccess;
}

// The same in all processes, as they have the same devices.
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (context_of(device) == nullptr) return kErrorInvalidDevice;
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  uuid->bytes[0] = static_cast<unsigned char>(device + 1);
  return kSuccess;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  CUcontext found = context_of(device);
  if (found == nullptr) return kErrorInvalidDevice;
  std::lock_guard lock(state().mutex);
  ++found->retained;
  *context = found;
  return kSuccess;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  CUcontext found = context_of(device);
  if (found == nullptr) return kErrorInvalidDevice;
  std::lock_guard lock(state().mutex);
  if (found->retained == 0) return kErrorInvalidContext;
  --found->retained;  // the context itself stays: streams and memory of a stub outlive mistakes
  return kSuccess;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  CUcontext found = context_of(device);
  if (found == nullptr) return kErrorInvalidDevice;
  std::lock_guard lock(state().mutex);
  *flags = 0;
  *active = found->retained > 0 ? 1 : 0;
  return kSuccess;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  *context = current_context();
  return kSuccess;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (!context_stack.empty()) context_stack.pop_back();
  if (context != nullptr) context_stack.push_back(context);
  return kSuccess;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (context == nullptr) return kErrorInvalidContext;
  context_stack.push_back(context);
  return kSuccess;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (context_stack.empty()) return kErrorInvalidContext;
  if (context != nullptr) *context = context_stack.back();
  context_stack.pop_back();
  return kSuccess;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (context == nullptr) context = current_context();
  if (context == nullptr) return kErrorInvalidContext;
  std::lock_guard lock(state().mutex);
  *id = context->id;
  return kSuccess;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  *device = current_context()->device;
  return kSuccess;
}

CUresult cuCtxSynchronize() {
  if (CUresult r = enter_unsafe(Call::sync); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (invalidate_captures_of(current_context())) return kErrorCaptureUnsupported;
  drain(current_context());
  return current_context()->fault;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (least != nullptr) *least = 0;
  std::lock_guard lock(state().mutex);
  if (greatest != nullptr) *greatest = 1 - state().queues.priorities;
  return kSuccess;
}

CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::size_t used = 0;
  std::lock_guard lock(state().mutex);
  for (const auto& [base, range] : state().ranges) {
    if (range.type == kMemoryTypeDevice && range.context == current_context()) used += range.bytes;
  }
  *total = total_bytes;
  *free = used < total_bytes ? total_bytes - used : 0;
  return kSuccess;
}

void pithStubCounters(StubCounters* out) {
  State& s = state();
  const AtomicCounters& c = s.counters;
  *out = StubCounters{c.allocs,
                      c.frees,
                      c.syncs,
                      c.queries,
                      c.launches,
                      c.graph_launches,
                      c.pageable_copies,
                      c.host_functions,
                      c.from_host_functions,
                      c.blocked,
                      c.host_copies,
                      c.ipc_opens,
                      c.ipc_closes,
                      c.descriptors_exported,
                      c.network_flushes,
                      c.blocks_together,
                      c.largest_grid};
  std::lock_guard lock(s.mutex);
  const auto limit = std::chrono::milliseconds(s.host_limit_ms);
  for (const auto& [thread, start] : s.running_host_functions) {
    if (Clock::now() - start > limit) ++out->blocked_host_functions;
  }
}

void pithStubReset() {
  State& s = state();
  AtomicCounters& c = s.counters;
  for (auto* counter : {&c.allocs, &c.frees, &c.syncs, &c.queries, &c.launches, &c.graph_launches,
                        &c.pageable_copies, &c.host_functions, &c.from_host_functions, &c.blocked,
                        &c.host_copies, &c.ipc_opens, &c.ipc_closes, &c.descriptors_exported,
                        &c.network_flushes, &c.blocks_together, &c.largest_grid})
    *counter = 0;
  s.attributes_need_context = false;
  s.blocks_open_once = false;
  s.largest_allocation = ~std::size_t{0};
  s.locks = Locks::none;
  std::lock_guard lock(s.mutex);
  s.queues = queues_from_environment();
  for (CUctx_st& context : s.contexts) {
    context.fault = kSuccess;
    context.paused = false;
    context.room_for_blocks = all_blocks;
    context.until_failure = -1;
  }
}

void pithStubRenewContext() {
  State& s = state();
  const CUcontext context = current_context();
  std::lock_guard lock(s.mutex);
  context->id = ++s.contexts_made;
  context->retained = 0;
  context->legacy = nullptr;
  context->per_thread.clear();
  for (auto stream = s.streams.begin(); stream != s.streams.end();) {
    const bool dies = (*stream)->context == context;
    if (dies) {
      (*stream)->queue->close();
      s.dead_streams.push_back(*stream);
    }
    stream = dies ? s.streams.erase(stream) : std::next(stream);
  }
  std::erase_if(s.ranges, [&](const auto& range) { return range.second.context == context; });
}

void pithStubFailAfter(std::int64_t operations) {
  std::lock_guard lock(state().mutex);
  current_context()->until_failure = operations;
  current_context()->refuses = false;
}

void pithStubRefuseAfter(std::int64_t operations) {
  std::lock_guard lock(state().mutex);
  current_context()->until_failure = operations;
  current_context()->refuses = true;
}

bool pithStubIsArmed() {
  std::lock_guard lock(state().mutex);
  return current_context()->until_failure >= 0;
}

void pithStubOpenBlocksOnce(bool once) { state().blocks_open_once = once; }

void pithStubLargestAllocation(std::size_t bytes) { state().largest_allocation = bytes; }

void pithStubNeedContext(bool needed) { state().attributes_need_context = needed; }

void pithStubPause(bool paused) { current_context()->paused = paused; }

void pithStubRoomForBlocks(unsigned most) {
  current_context()->room_for_blocks = most > 0 ? most : all_blocks;
}

void pithStubLocks(bool locks, bool queries) {
  state().locks = !locks ? Locks::none : queries ? Locks::all : Locks::all_but_queries;
}

void pithStubQueues(const StubQueues* queues) {
  std::lock_guard lock(state().mutex);
  state().queues = *queues;
}

void pithStubStrict(Strict strict, unsigned host_function_limit_ms) {
  state().strict = strict;
  state().host_limit_ms = host_function_limit_ms;
}

}  // extern "C"

}  // namespace pith::cuda
