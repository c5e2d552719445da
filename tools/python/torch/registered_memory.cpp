#include "registered_memory.hpp"

#include <c10/core/CPUAllocator.h>

#include <mutex>

#include "errors.hpp"

namespace pith_torch {

namespace {

// PyTorch takes a new allocator only if its priority is not lower than that of the present one.
constexpr std::uint8_t priority = 200;

void free_registered(void* memory) { pithMemFree(memory); }

class RegisteredAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0) check(pithMemAlloc(&memory, bytes));
    return {memory, memory, &free_registered, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_registered; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

RegisteredAllocator& allocator() {
  static RegisteredAllocator& made = *new RegisteredAllocator;  // tensors may outlive everything
  return made;
}

}  // namespace

at::Tensor empty_registered(const std::vector<int64_t>& shape, at::ScalarType type) {
  int64_t count = 1;
  for (const int64_t length : shape) {
    TORCH_CHECK_VALUE(length >= 0, "pith.torch.empty: a length is ", length,
                      ", expected at least 0");
    count *= length;
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * c10::elementSize(type);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocator().allocate(bytes),
                       &allocator(), false);
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(type));
  return tensor.set_(std::move(storage), 0, shape, {});
}

void register_new_tensors(bool on) {
  static std::mutex mutex;
  static c10::Allocator* before = nullptr;
  const std::lock_guard lock(mutex);
  if (on == (before != nullptr)) return;
  if (on) {
    before = c10::GetAllocator(c10::DeviceType::CPU);
    c10::SetAllocator(c10::DeviceType::CPU, &allocator(), priority);
  } else {
    c10::SetAllocator(c10::DeviceType::CPU, before, priority);
    before = nullptr;
  }
}

}  // namespace pith_torch
