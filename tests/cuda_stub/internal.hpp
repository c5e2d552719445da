// The inside of the stub. One mutex (State::mutex) guards every object but queues and records; no
// call waits while it holds it. State is never freed, so threads may outlive main().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "cuda/driver_api.hpp"
#include "tests/cuda_stub/stub.hpp"

namespace pith::cuda {

// Declares every function of the table as exported; a definition that differs does not compile.
#define PITH_STUB_DECLARE(field, symbol, arguments) \
  extern "C" __attribute__((visibility("default"))) CUresult symbol arguments;
PITH_CUDA_REQUIRED(PITH_STUB_DECLARE)
PITH_CUDA_OPTIONAL(PITH_STUB_DECLARE)
#undef PITH_STUB_DECLARE
extern "C" {
__attribute__((visibility("default"))) void pithStubFailAfter(std::int64_t operations);
__attribute__((visibility("default"))) void pithStubRefuseAfter(std::int64_t operations);
__attribute__((visibility("default"))) bool pithStubIsArmed();
__attribute__((visibility("default"))) void pithStubPause(bool paused);
__attribute__((visibility("default"))) void pithStubRoomForBlocks(unsigned most);
__attribute__((visibility("default"))) void pithStubLocks(bool locks, bool queries);
__attribute__((visibility("default"))) void pithStubQueues(const StubQueues* queues);
__attribute__((visibility("default"))) void pithStubCapturesBody(CUstream stream);
__attribute__((visibility("default"))) void pithStubNeedContext(bool needed);
__attribute__((visibility("default"))) void pithStubOpenBlocksOnce(bool once);
__attribute__((visibility("default"))) void pithStubLargestAllocation(std::size_t bytes);
__attribute__((visibility("default"))) void pithStubRenewContext();
__attribute__((visibility("default"))) void pithStubDisown(CUdeviceptr address);
__attribute__((visibility("default"))) void pithStubCounters(StubCounters* counters);
__attribute__((visibility("default"))) void pithStubReset();
__attribute__((visibility("default"))) void pithStubStrict(Strict strict, unsigned limit_ms);
}

// Memory of devices and pinned memory never start as zeros. Of a large block only both ends are
// filled, unless PITH_TEST_FULL=1: to touch all pages of scratch that hardly anybody uses took half
// the time of many tests.
inline void fill_uninitialised(void* memory, std::size_t bytes) {
  constexpr int nothing = 0xCD;
  constexpr std::size_t end = std::size_t{128} << 10;
  static const bool all = std::getenv("PITH_TEST_FULL") != nullptr;
  auto* const begin = static_cast<char*>(memory);
  if (all || bytes <= 2 * end) {
    std::memset(begin, nothing, bytes);
  } else {
    std::memset(begin, nothing, end);
    std::memset(begin + bytes - end, nothing, end);
  }
}

using Operation = std::function<void()>;
using Clock = std::chrono::steady_clock;

// Where streams put their operations for the device: each begins when all that were put there
// before have begun, and those that hold it have ended. An operation that waits for an earlier one
// of its stream thus keeps those of other streams waiting.
class HardwareQueue {
 public:
  std::uint64_t take_turn();
  void await_turn(std::uint64_t turn);
  void pass();

 private:
  std::mutex mutex_;
  std::condition_variable passed_;
  std::uint64_t given_ = 0, next_ = 0;
};

// A thread that runs operations in order. It ends when closed and empty; nobody joins it.
class Queue {
 public:
  // Without a hardware queue: as if it had one of its own.
  static std::shared_ptr<Queue> start(std::shared_ptr<HardwareQueue> hardware = nullptr);
  // Holds: what comes later to the hardware queue does not begin before it has ended.
  void push(Operation operation, bool holds = false);
  std::uint64_t tail();  // a ticket for everything pushed so far
  void wait(std::uint64_t ticket);
  bool idle();
  void close();

 private:
  struct Given {
    Operation operation;
    std::uint64_t turn;
    bool holds;
  };
  void loop();
  void run(Given& given);
  std::shared_ptr<HardwareQueue> hardware_;
  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::deque<Given> operations_;
  std::uint64_t pushed_ = 0, done_ = 0;
  bool closed_ = false;
};

// One recording of an event. Waiting streams keep it, so that recording anew does not touch them.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Clock::time_point time;
  void finish();
  void wait();
  bool finished();
};

struct CUgraphNode_st {
  std::size_t index = 0;
  std::size_t lane = 0;  // the stream it was captured on; lane 0 is the origin
  std::vector<CUgraphNode> after;
  Operation run;
};

struct CUuserObject_st {
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  std::atomic<unsigned> references{0};
};
void release(CUuserObject object, unsigned count);

// Executable graphs and what is launched of them share it.
struct GraphBody {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // in order of capture, hence topological
  std::vector<std::pair<CUuserObject, unsigned>> retained;
  GraphBody() = default;
  GraphBody(const GraphBody&) = delete;
  ~GraphBody() {
    for (const auto& [object, count] : retained) release(object, count);
  }
  std::size_t lanes = 1;
};

struct CUgraph_st {
  std::shared_ptr<GraphBody> body = std::make_shared<GraphBody>();
};

// An instantiated graph. Lanes but the first run on workers of its own, so that branches which wait
// for each other through memory make progress, as they do on a device.
struct ExecBody {
  std::shared_ptr<const GraphBody> graph;
  std::vector<std::shared_ptr<Queue>> workers;
  std::mutex serial;  // launches of one exec never overlap
  void replay();
  ~ExecBody();
};

struct CUgraphExec_st {
  std::shared_ptr<ExecBody> body;
};

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = kCaptureGlobal;
  std::thread::id thread;
  CUstream origin = nullptr;
  std::vector<CUstream> streams;  // origin first
  CUgraph graph = nullptr;
  bool invalid = false;
  bool of_body = false;  // of a conditional node
};

inline constexpr unsigned all_blocks = ~0u;

struct CUctx_st {
  CUdevice device = 0;
  std::uint64_t id = 0;  // of the context that is at this address now
  int retained = 0;
  std::atomic<CUresult> fault{kSuccess};
  std::atomic<bool> paused{false};
  std::atomic<unsigned> room_for_blocks{all_blocks};
  std::atomic<unsigned> blocks_together{0};  // that run
  std::int64_t until_failure = -1;  // operations that are submitted before the one that fails
  bool refuses = false;             // that one
  std::map<int, std::vector<std::shared_ptr<HardwareQueue>>> hardware;  // by priority
  std::vector<std::shared_ptr<HardwareQueue>> copy_queues;
  std::size_t streams_made = 0;
  CUstream legacy = nullptr;
  std::map<std::thread::id, CUstream> per_thread;
  std::set<CUcontext> peers;  // whose memory it may touch
};

struct CUstream_st {
  CUcontext context = nullptr;
  unsigned flags = kStreamDefault;
  int priority = 0;
  std::shared_ptr<Queue> queue;
  std::shared_ptr<HardwareQueue> copies;  // null: one of its own
  std::shared_ptr<Capture> capture;
  std::size_t lane = 0;
  std::vector<CUgraphNode> frontier;  // what the next captured operation comes after
  std::vector<CUgraphNode> reported;  // storage behind cuStreamGetCaptureInfo
  bool legacy() const { return context->legacy == this; }
  bool blocking() const { return (flags & kStreamNonBlocking) == 0; }
};

struct EventBody {
  std::mutex mutex;
  std::shared_ptr<Record> record;  // null: never recorded
};

struct CUevent_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<EventBody> body = std::make_shared<EventBody>();
  bool captured = false;  // last recorded in a capture, which may be over
  std::weak_ptr<Capture> capture;
  std::vector<CUgraphNode> frontier;
};

// What cuMemCreate makes: a memory file.
struct Physical {
  Physical(int file, std::size_t size, CUdevice of, int types, std::uint64_t number)
      : fd(file), bytes(size), device(of), handle_types(types), id(number) {}
  ~Physical();
  Physical(const Physical&) = delete;
  const int fd;
  const std::size_t bytes;
  const CUdevice device;
  const int handle_types;
  const std::uint64_t id;
};

struct CUmemPoolHandle_st {
  CUdevice device = 0;
  std::set<CUdevice> reached_by;
};

struct Range {
  std::size_t bytes = 0;
  unsigned type = 0;  // kMemoryTypeHost or kMemoryTypeDevice
  bool registered = false;
  bool imported = false;  // another process's
  CUcontext context = nullptr;
  std::uint64_t id = 0;
  bool disowned = false;  // cuPointerGetAttribute tells no context, and there is no IPC handle
  CUmemoryPool pool = nullptr;
  std::shared_ptr<Physical> physical = nullptr;  // of what is mapped by hand
  std::set<CUdevice> reached_by = {};            // of that
};

struct AtomicCounters {
  std::atomic<std::uint64_t> allocs, frees, syncs, queries, launches, graph_launches,
      pageable_copies, host_functions, from_host_functions, blocked, host_copies, ipc_opens,
      ipc_closes, descriptors_exported, network_flushes, blocks_together, largest_grid;
};

// What who frees memory keeps others from.
enum class Locks : unsigned char { none, all, all_but_queries };

struct State {
  std::mutex mutex;
  bool initialised = false;
  std::deque<CUctx_st> contexts;  // one per device, never moved
  std::uint64_t contexts_made = 0;
  std::set<CUstream> streams;
  std::vector<CUstream> dead_streams;  // of contexts that were reset
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<std::uintptr_t, Range> ranges;
  std::uint64_t next_id = 1;
  AtomicCounters counters{};
  std::atomic<Strict> strict{Strict::count};
  std::atomic<std::int64_t> host_limit_ms{100};
  std::atomic<bool> attributes_need_context{false};
  std::atomic<bool> blocks_open_once{false};
  std::atomic<std::size_t> largest_allocation{~std::size_t{0}};
  StubQueues queues;
  bool peers_reach = true;  // devices reach each other's memory
  bool launches_block = false;
  bool maps_memory = true;  // by hand
  std::atomic<Locks> locks{Locks::none};
  std::atomic<int> freeing{0};
  std::map<std::thread::id, Clock::time_point> running_host_functions;
};

State& state();
CUcontext current_context();

enum class Call { other, alloc, free, sync, query, launch, graph_launch };

// Every entry point begins here: initialised? counted, and refused inside a host function?
CUresult enter(Call call);
// For calls that a thread may not make while certain captures go on; they invalidate those.
CUresult enter_unsafe(Call call);
CUresult check_unsafe();  // the second half of it

// The next three need State::mutex held. `resolve` gives null for no or an unknown stream.
CUstream resolve(CUstream handle, CUresult& result);
CUstream make_stream(CUcontext context, unsigned flags, int priority);
void enqueue(CUstream stream, Operation operation, bool holds = false);

// A host copy is one between host and device. The last two are memory operations.
enum class Sort : unsigned char { other, host_copy, write, wait };
// Sends one operation to a stream, or to the graph that the stream is captured into.
CUresult submit(CUstream handle, Operation operation, Sort sort = Sort::other);
// The context that an operation on this stream runs in; null with `result` set when it is none.
CUcontext context_of(CUstream handle, CUresult& result);
// Waits for everything that a context was given; nothing inside a callback.
void drain(CUcontext context);
void drain_to_free(CUcontext context);

// Captures; State::mutex held.
CUresult check_capture(CUstream stream);  // invalidated, or implicit through the legacy stream
void record_node(CUstream stream, Operation operation);
void invalidate(Capture& capture);
void abandon(Capture& capture);  // ends it without a graph

// kSuccess when [address, address + bytes) lies in one known range.
CUresult check_range(CUdeviceptr address, std::size_t bytes);
bool is_pageable(CUdeviceptr address);
// The range that holds `address`, and where it begins; State::mutex held. Null where there is none.
Range* range_at(CUdeviceptr address, std::uintptr_t& base);
// What cuMemAddressReserve gave, base and size; State::mutex held.
std::optional<std::pair<std::uintptr_t, std::size_t>> reserved_range(std::uintptr_t address);
bool is_device(CUdeviceptr address);

// Runs work that must not call CUDA: kernels and host functions.
void run_callback(void (*function)(void*), void* argument);
bool in_callback();

}  // namespace pith::cuda
