// The CUDA driver and one of its contexts, as the process shares them.
//
// Devices live as long as the process, and so does what they allocate: freeing device or pinned
// memory waits for everything the context was given, also for a stream of the user's that waits for
// the very thread that frees. Memory given back is used again by later communicators.
// A context that was reset takes its own down with it: its Device is left alone, never freed, for a
// stream or a communicator may still look at it. The next context may have the same address.
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

// Loads and initialises the driver unless that is done.
Expected<const Driver*> driver();
// The driver where the process has it anyway, else null: for checks that must cost nothing
// elsewhere. `look_for_driver` makes it known without loading anything; it is cheap while the
// process loads no further libraries.
const Driver* known_driver();
void look_for_driver();

// Tells a context from the one that was at its address before; 0: the driver does not say.
unsigned long long id_of(const Driver& driver, CUcontext context);

// Tells a device, or a part of one that is a device to CUDA, from all others on all hosts; empty:
// the driver does not say.
std::string uuid_of(const Driver& driver, CUdevice device);

// A device's primary context, held from then on: the process uses the device.
Expected<CUcontext> primary_context(const Driver& driver, CUdevice device);

// Pageable: a kernel cannot use the host's address, for whatever reason.
enum class Where { pageable, pinned, device };
// Error: the driver does not say, so it may be any.
Expected<Where> where_is(const Driver& driver, const void* memory);

// The legacy default stream, or the thread's own: which of them depends on the current context.
inline bool is_default(CUstream stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= kStreamPerThread;
}
// Tells streams of one context apart: the thread's own has the same handle on all threads.
inline const void* identity_of(CUstream stream) {
  static thread_local char own;
  return reinterpret_cast<std::uintptr_t>(stream) == kStreamPerThread ? &own
                                                                      : static_cast<void*>(stream);
}

// Words of pinned memory that a device, too, reads and writes.
inline std::uint64_t load_word(const std::uint64_t& word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
}
inline void store_word(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// A pair of flags in pinned memory, each on a cache line of its own. The stream writes `start` and
// waits for `end`. Values only grow, so a slot needs no clean-up between its users.
struct Slot {
  alignas(64) std::uint64_t start = 0;
  alignas(64) std::uint64_t end = 0;

  std::uint64_t started() const { return load_word(start); }
};

inline CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// For allocations of ours while somebody captures: they have nothing to do with the capture.
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
  // A default stream's handle stands for one in each context; here for that of the memory.
  static Expected<Device*> of_memory(const void* memory);
  static Expected<Device*> of_context(CUcontext context);
  // One that is known already, for threads without a context; null: none is.
  static Device* any();

  const Driver& driver() const { return driver_; }
  CUcontext context() const { return context_; }
  CUdevice ordinal() const;
  Error error(const char* what, CUresult result) const;
  std::string uuid() const;  // of the context's device

  // Loaded at the first call.
  Expected<const KernelSet*> kernels();
  Expected<CUfunction> worker();

  // What has become of the device, by one of our streams; success where it is well.
  CUresult failure(CUstream stream) const;

  // The stream belongs to this device's context.
  bool owns(CUstream stream) const;

  // Null where there is no memory left. `bytes` is a power of two.
  std::byte* take_block(MemoryKind kind, std::size_t bytes);
  void give_block(MemoryKind kind, std::byte* block, std::size_t bytes);
  struct Block {
    MemoryKind kind;
    std::byte* data;
    std::size_t bytes;
  };
  // Somebody on the device may still use them: until `over` says otherwise, which is asked whenever
  // spare memory runs out, and calls nothing of this class.
  void give_later(std::vector<Block> blocks, std::function<bool()> over);

  struct Turn {
    Slot* slot = nullptr;
    std::uint64_t value = 0;  // greater than any value the slot has held
  };
  static bool has_passed(const Turn& turn) { return turn.slot->started() >= turn.value; }
  // How many blocks a worker on `stream` gets of those it wants, so that workers leave other
  // kernels most of the device: at most an even share of what streams with workers may have, and
  // what the other streams leave of it, but one at least, which is enough to get on. Workers of one
  // stream run one after another. `until`: its slot passes the value when the worker has ended.
  unsigned grant_blocks(const Turn& until, CUstream stream, unsigned wanted);
  // Of a worker that was not launched after all.
  void return_blocks(const Turn& until);
  Expected<Turn> take_slot();
  // One whose flags are zero, and may be set back; so it is when it is given back. Not to be mixed
  // with the others: a stream may still be looking at a value that only grew.
  Expected<Slot*> take_fresh_slot();
  void give_fresh_slot(Slot* slot);
  // A stream that has not got there yet may still write the flag: the slot rests until it has.
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
  std::mutex loading_;  // held while the driver loads
  CUfunction worker_ = nullptr;
  std::mutex mutex_;  // guards what follows; taken by calls that run
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

// Makes a context current on this thread for the length of a scope.
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
