// The compute seam. A kernel is a type with an Args struct. run<Kernel>(args, after) enqueues it on
// a strand's queue and never suspends; the returned Fence is awaited only where the host must see
// the result. A host queue runs the kernel inline, a CUDA queue launches it in stream order, and
// the simulator charges virtual time. Each Compute enters its implementations in its own table, so
// a new kernel never edits this file.
#pragma once

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/memory.hpp"
#include "core/operation.hpp"

namespace pith {

// A point in a compute queue. Zero has always been reached.
struct Fence {
  std::uint64_t ticket = 0;
};

// A callback that Compute::progress makes once the fence is reached. Lives in the waiting
// coroutine's frame.
struct FenceWait {
  Fence fence;
  void (*reached)(FenceWait& self) = nullptr;
  void* owner = nullptr;
  FenceWait* next = nullptr;
};

// The name of a kernel and the memory it uses, for traces only. A kernel without `note(args)` is
// traced without its memory.
struct KernelNote {
  std::string_view name = "kernel";
  static constexpr std::size_t most_operands = 32;
  std::array<ConstBytes, most_operands> writes;
  std::array<ConstBytes, most_operands> reads;
};

namespace detail {
inline constexpr std::size_t most_kernels = 64;
using Describe = KernelNote (*)(const void* args);
inline std::atomic<int> kernel_count{0};
inline std::array<Describe, most_kernels> kernel_notes{};

template <class Kernel>
int register_kernel() {
  using Args = typename Kernel::Args;
  const int index = kernel_count++;
  if constexpr (requires(const Args& args) { Kernel::note(args); }) {
    kernel_notes.at(static_cast<std::size_t>(index)) = [](const void* args) {
      return Kernel::note(*static_cast<const Args*>(args));
    };
  }
  return index;
}
template <class Kernel>
inline const int kernel_index = register_kernel<Kernel>();
}  // namespace detail

class Scratch;

// Memory as a dma-buf describes it to network hardware.
struct ExportedMemory {
  int descriptor = -1;  // the caller closes it; -1: there is none
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

class MemoryExporter {
 public:
  // The allocation around `at`.
  virtual ExportedMemory export_memory(const std::byte* at) = 0;

 protected:
  ~MemoryExporter() = default;
};

class Compute {
 public:
  static constexpr std::size_t max_kernels = detail::most_kernels;
  // Calls of several ranks may share a Compute only if one thread of control runs them all.
  Compute();
  virtual ~Compute();
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  template <class Kernel>
  Fence run(const typename Kernel::Args& args, Fence after = {}) {
    return submit(table_[static_cast<std::size_t>(detail::kernel_index<Kernel>)], &args,
                  sizeof args, Kernel::work_bytes(args), after);
  }

  virtual MemoryKind kind() const = 0;
  virtual bool reached(Fence fence) const = 0;
  // Calls wait.reached from progress(): from the next one if the fence has already been reached.
  virtual void notify(FenceWait& wait) = 0;
  // Keeps memory that kernels still read, and releases it once the fence is reached.
  void retire(Lease lease, Scratch scratch, Fence fence);

  // Calls the waits whose fences are reached; true if there were any.
  virtual bool progress() = 0;

  // Memory of this kind, pooled by size. Throws bad_alloc, never returns null.
  virtual std::byte* take_scratch(std::size_t bytes) = 0;
  virtual void give_scratch(std::byte* scratch, std::size_t bytes) = 0;

  // An id of this memory if network hardware reads and writes it directly, else 0. Under one id an
  // address never comes to mean other memory.
  virtual std::uint64_t network_memory() const { return 0; }
  // For network hardware whose driver does not ask this device's; null: there is none. Only with
  // network_memory().
  virtual MemoryExporter* exporter() { return nullptr; }
  // Makes what the network has written so far visible to the kernels that follow.
  virtual void see_network_writes() {}
  // For scratch that the network may still access after its call has ended: it is not reused until
  // the returned object is destroyed, which may be after this Compute. Only with network_memory().
  virtual std::shared_ptr<void> withhold_scratch(std::byte* scratch, std::size_t bytes);

 protected:
  using Implementation = void (*)(const void* args);
  template <class Kernel, void (*implementation)(const typename Kernel::Args&)>
  void set() {
    table_[static_cast<std::size_t>(detail::kernel_index<Kernel>)] = [](const void* args) {
      implementation(*static_cast<const typename Kernel::Args*>(args));
    };
  }
  // For a Compute that runs one of its kernels by other means than submit().
  template <class Kernel>
  Implementation implementation_of() const {
    return table_[static_cast<std::size_t>(detail::kernel_index<Kernel>)];
  }
  // For a Compute that wraps another one, to time or record its kernels.
  void adopt_kernels(const Compute& other) { table_ = other.table_; }
  static Fence submit_to(Compute& other, Implementation implementation, const void* args,
                         std::size_t args_bytes, std::size_t work_bytes, Fence after) {
    return other.submit(implementation, args, args_bytes, work_bytes, after);
  }
  KernelNote note_of(Implementation implementation, const void* args) const;
  virtual Fence submit(Implementation implementation, const void* args, std::size_t args_bytes,
                       std::size_t work_bytes, Fence after) = 0;

 private:
  struct Retired;
  std::array<Implementation, max_kernels> table_{};
  std::vector<std::unique_ptr<Retired>> all_retired_;
  std::vector<Retired*> spare_retired_;
};

// Scratch memory that is given back at the end of a scope.
class Scratch {
 public:
  Scratch() = default;
  Scratch(Compute& compute, std::size_t bytes)
      : compute_(&compute), data_(compute.take_scratch(bytes)), size_(bytes) {}
  Scratch(Scratch&& other) noexcept
      : compute_(other.compute_), data_(other.data_), size_(other.size_) {
    other.compute_ = nullptr;
  }
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(compute_, other.compute_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Scratch() {
    if (compute_) compute_->give_scratch(data_, size_);
  }
  explicit operator bool() const { return compute_ != nullptr; }
  Bytes bytes() const { return {data_, size_, compute_ ? compute_->kind() : MemoryKind::host}; }
  std::uint64_t network_memory() const { return compute_->network_memory(); }
  MemoryExporter* exporter() const { return compute_->exporter(); }
  // Passes ownership to the returned object. See Compute::withhold_scratch.
  std::shared_ptr<void> withhold() {
    return std::exchange(compute_, nullptr)->withhold_scratch(data_, size_);
  }

 private:
  Compute* compute_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace pith
