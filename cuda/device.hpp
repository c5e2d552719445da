// The CUDA driver and its contexts, shared by the whole process.
//
// A Device lives as long as the process, and so does what it allocates: freeing device or pinned
// memory waits for all work of the context, including user streams that wait for the freeing
// thread. Memory given back is reused by later communicators.
// A context reset destroys its memory. Its Device is kept, unused, because a stream or communicator
// may still refer to it. The next context may have the same address.
// Threads: any.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "cuda/driver_api.hpp"
#include "cuda/kernel_set.hpp"

namespace pith::cuda {

// Loads and initialises the driver if that has not been done.
Expected<const Driver*> driver();
// The driver if the process has loaded it, else null: for checks that must cost nothing without
// CUDA. `look_for_driver` detects a loaded driver and loads nothing; it is cheap unless the process
// has loaded further libraries.
const Driver* known_driver();
void look_for_driver();

// Tells a context from an earlier one at the same address; 0: the driver does not know.
unsigned long long id_of(const Driver& driver, CUcontext context);

// Globally unique id of a device or MIG instance; empty: the driver does not know.
std::string uuid_of(const Driver& driver, CUdevice device);

// A device's primary context, retained from then on: the device counts as used by this process.
Expected<CUcontext> primary_context(const Driver& driver, CUdevice device);

// Pageable: a kernel cannot use the host's address, for whatever reason.
enum class Where { pageable, pinned, device };
// Error: the driver does not know, so it may be any of them.
Expected<Where> where_is(const Driver& driver, const void* memory);

// Whether the handle is the legacy default stream or the thread's own; the context decides which
// stream that is.
inline bool is_default(CUstream stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= kStreamPerThread;
}
// Identifies a stream within its context: the per-thread stream has the same handle on all threads.
inline const void* identity_of(CUstream stream) {
  static thread_local char own;
  return reinterpret_cast<std::uintptr_t>(stream) == kStreamPerThread ? &own
                                                                      : static_cast<void*>(stream);
}

// Access words of pinned memory that host and device both read and write.
inline std::uint64_t load_word(const std::uint64_t& word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
}
inline void store_word(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// Two flags in pinned memory, each on its own cache line. The stream writes `start` and waits for
// `end`. Values only grow, so a slot can be reused without a reset.
struct Slot {
  alignas(64) std::uint64_t start = 0;
  alignas(64) std::uint64_t end = 0;

  std::uint64_t started() const { return load_word(start); }
};

inline CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// Lets us allocate while the application captures a stream: our calls are no part of its capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    driver_.capture_exchange_mode(&mode_);
  }
  ~RelaxedCapture() { driver_.capture_exchange_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = kCaptureRelaxed;
};

class Device {
 public:
  static Expected<Device*> of_stream(CUstream stream);
  // For default streams, whose handle names one stream per context: the memory's context counts.
  static Expected<Device*> of_memory(const void* memory);
  static Expected<Device*> of_context(CUcontext context);
  // Any known device, for threads without a context; null: there is none.
  static Device* any();

  const Driver& driver() const { return driver_; }
  CUcontext context() const { return context_; }
  CUdevice ordinal() const;
  Error error(const char* what, CUresult result) const;
  std::string uuid() const;  // of the context's device

  // Loaded at the first call.
  Expected<const KernelSet*> kernels();
  Expected<CUfunction> worker();

  // The device's error state, asked through one of our streams; kSuccess: none.
  CUresult failure(CUstream stream) const;

  // Whether the stream belongs to this device's context.
  bool owns(CUstream stream) const;

  // Null if memory is exhausted. `bytes` is a power of two.
  std::byte* take_block(MemoryKind kind, std::size_t bytes);
  void give_block(MemoryKind kind, std::byte* block, std::size_t bytes);
  struct Block {
    MemoryKind kind;
    std::byte* data;
    std::size_t bytes;
  };
  // Gives back blocks that the device may still use until `over` returns true. `over` is polled
  // whenever spare memory runs out and must call nothing of this class.
  void give_later(std::vector<Block> blocks, std::function<bool()> over);

  struct Turn {
    Slot* slot = nullptr;
    std::uint64_t value = 0;  // greater than any value the slot has held
  };
  static bool has_passed(const Turn& turn) { return turn.slot->started() >= turn.value; }
  // Limits the blocks of a worker on `stream` so that most of the device stays free for other
  // kernels. Grants at most `wanted`, at most an even share of the budget among streams with
  // workers, and at most what other streams leave; at least 1, which suffices for progress. Workers
  // of one stream run one after another and share a grant. `until` passes when the worker ends.
  unsigned grant_blocks(const Turn& until, CUstream stream, unsigned wanted);
  // Undoes grant_blocks() for a worker that was not launched.
  void return_blocks(const Turn& until);
  Expected<Turn> take_slot();
  // A slot whose flags are zero and which may be reset; it must be zero when given back. Never
  // mixed with ordinary slots, whose growing values a stream may still read.
  Expected<Slot*> take_fresh_slot();
  void give_fresh_slot(Slot* slot);
  // Reusable once the stream has passed: until then it may still write the flag.
  void give_slot(Turn turn);

 private:
  Device(const Driver& driver, CUcontext context, unsigned long long id)
      : driver_(driver), context_(context), id_(id) {}
  static Device* find(const Driver& driver, CUcontext context);
  Expected<Slot*> add_slots(std::size_t count);
  Slot* find_fresh_slot();  // null: none is spare
  std::optional<Turn> find_slot();
  std::byte* take_spare(MemoryKind kind, std::size_t bytes);
  void gather_late();

  const Driver& driver_;
  const CUcontext context_;
  const unsigned long long id_;
  std::mutex loading_;  // held while the driver loads modules
  CUfunction worker_ = nullptr;
  std::mutex mutex_;  // guards what follows; held briefly, for running calls take it
  std::unique_ptr<KernelSet> kernels_;
  std::map<std::size_t, std::vector<std::byte*>> spare_[2];  // by kind, then size
  struct Late {
    std::vector<Block> blocks;
    std::function<bool()> over;
  };
  std::vector<Late> late_;
  struct Grant {
    Turn until;
    CUstream stream;
    unsigned blocks;
  };
  std::vector<Grant> grants_;
  std::vector<Turn> free_slots_;
  std::vector<Turn> resting_;
  std::vector<Slot*> fresh_slots_;
};

// Makes a context current on this thread while in scope.
class Current {
 public:
  explicit Current(const Device& device)
      : driver_(device.driver()), pushed_(driver_.ctx_push(device.context()) == kSuccess) {}
  ~Current() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.ctx_pop(&popped);
  }
  Current(const Current&) = delete;

 private:
  const Driver& driver_;
  const bool pushed_;
};

}  // namespace pith::cuda
