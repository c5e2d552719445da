// Shared by the probes of driver_facts. Each probe runs in its own process, which may hang or
// crash; its output up to then is kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/driver_api.hpp"

namespace pith::facts {

// Shared memory of a probe's process, its parent and its helper.
struct Page {
  std::atomic<std::uint64_t> begun_ns;  // when the probe had its device; its time limit starts here
  std::atomic<unsigned> used;
  char text[1 << 16];
  char stage[256];
  std::atomic<std::uint64_t> flags[16];  // between a probe and its helper
  char handle[64];
};

Page& page();
// Adds a line to the result.
[[gnu::format(printf, 2, 3)]] void say(const char* name, const char* format, ...);
// What is being tried; reported if it never ends.
void stage(const std::string& what);
// Ends the probe with a line.
[[noreturn]] void give_up(const std::string& why);

const cuda::Driver& cu();
// Functions that Pith does not use; null if the driver lacks them.
void* symbol(const char* name);
std::string describe(cuda::CUresult result);
void must(cuda::CUresult result, const char* what);
bool over_stub();

std::uint64_t now_ns();
void sleep_ms(int ms);
// Whether the condition became true within the limit.
bool wait_for(const std::function<bool()>& condition, int limit_ms);
double median(std::vector<double> values);
double high(std::vector<double> values);  // the 99th percentile

// The first device's primary context, current on this thread. The constructor starts the probe's
// time.
struct Gpu {
  Gpu();
  cuda::CUcontext context = nullptr;
};

inline cuda::CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// Zeroed pinned words; never freed, since that may block.
class Words {
 public:
  explicit Words(std::size_t count);
  cuda::CUdeviceptr at(std::size_t i) const { return address_of(memory_ + i); }
  std::atomic_ref<std::uint64_t> operator[](std::size_t i) const {
    return std::atomic_ref<std::uint64_t>(memory_[i]);
  }

 private:
  std::uint64_t* memory_ = nullptr;
};

// high: -1, PyTorch's high priority for streams of process groups.
enum class Priority { usual, high, highest };
cuda::CUstream new_stream(Priority priority = Priority::usual);

// `touch` writes a word; `serve` waits for 1, 2, ... in word 0 and answers in word 1. Implemented
// in PTX here, or as host functions on the stub.
class Kernels {
 public:
  Kernels();
  cuda::CUresult touch(cuda::CUstream stream, cuda::CUdeviceptr word, std::uint64_t value) const;
  cuda::CUresult serve(cuda::CUstream stream, cuda::CUdeviceptr words, std::uint64_t steps) const;

 private:
  cuda::CUfunction touch_ = nullptr;
  cuda::CUfunction serve_ = nullptr;
};
cuda::CUresult load_library(cuda::CUlibrary* library);

// Keeps a stream busy until released: by a memory wait or a kernel.
enum class Holder { wait, kernel };
class Held {
 public:
  Held(Holder holder, const Kernels& kernels, Priority priority = Priority::usual);
  ~Held() { let_go(); }
  Held(const Held&) = delete;
  // Returns when the stream has reached it.
  void hold();
  void let_go();
  cuda::CUstream stream() const { return stream_; }

 private:
  Holder holder_;
  const Kernels& kernels_;
  cuda::CUstream stream_;
  Words words_{2};
  std::uint64_t value_ = 0;
};

// Makes a call on its own thread, with the context current.
class Attempt {
 public:
  Attempt(cuda::CUcontext context, std::function<cuda::CUresult()> call);
  ~Attempt() { thread_.join(); }
  Attempt(const Attempt&) = delete;
  bool ended(int limit_ms) const;
  std::string result() const;  // valid once ended

 private:
  std::atomic<bool> done_{false};
  double us_ = 0;
  cuda::CUresult result_ = 0;
  std::thread thread_;
};

struct Probe {
  const char* name;
  void (*run)();
  const char* connections;  // CUDA_DEVICE_MAX_CONNECTIONS, or null
  const char* why;          // the part of Pith that depends on it
};

// A process that runs `body` beside a probe; must be created before this process uses the driver.
class Helper {
 public:
  explicit Helper(void (*body)());
  ~Helper();
  Helper(const Helper&) = delete;

 private:
  int child_;
};
inline void signal(int flag, std::uint64_t value = 1) { page().flags[flag] = value; }
void await(int flag, std::uint64_t value = 1);

// facts_start.cpp: the device, and the cost of operations.
void probe_device();
void probe_start();
void probe_costs();
void probe_pointers();
void probe_streams();
// facts_memory.cpp: memory not allocated by cuMemAlloc.
void probe_memory();
void probe_mapped();  // facts_mapped.cpp
void probe_pools();
// facts_first.cpp: first launches, and what a thread that frees memory blocks.
void probe_lazy_loading();
void probe_local_memory();
void probe_first_worker();
void probe_under_free();
// facts_conditional.cpp
void probe_conditional();
// facts_flags.cpp: memory operations and serving kernels.
void probe_trips();
void probe_served();
void probe_captured();
void probe_queues();
void probe_priorities();
void probe_copies();
// facts_blocking.cpp
void probe_blocked_by_wait();
void probe_blocked_by_kernel();
void probe_behind_mem_free();
void probe_behind_host_free();
void probe_behind_stream_create();
void probe_behind_synchronize();
void probe_behind_free_kernel();
// facts_processes.cpp
void probe_ipc();
void probe_ipc_blocking();
void probe_beside_idle();
void probe_beside_wait();
void probe_beside_kernel();

}  // namespace pith::facts
