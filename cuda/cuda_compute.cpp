#include "cuda/cuda_compute.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <cstring>

#include "core/kernel_args.hpp"

namespace pith::cuda {

namespace {

// What the stub carries to the stream: the host kernel and its arguments.
struct Launch {
  void (*implementation)(const void* args);
  alignas(16) std::byte args[240];
};

void run_launch(void* raw) {
  const auto* launch = static_cast<const Launch*>(raw);
  launch->implementation(launch->args);
}

}  // namespace

CudaCompute::CudaCompute(Device& device, const Compute& host_kernels)
    : device_(device), driver_(device.driver()), scratch_(device, MemoryKind::cuda) {
  adopt_kernels(host_kernels);
  copy_ = implementation_of<CopyKernel>();
}

Expected<std::unique_ptr<CudaCompute>> CudaCompute::create(Device& device,
                                                           const Compute& host_kernels) {
  if (!device.driver().stub_launch) {
    return Error(Code::cuda, "no CUDA kernels in this build yet");
  }
  std::unique_ptr<CudaCompute> made(new CudaCompute(device, host_kernels));
  if (Error error = made->open()) return error;
  return made;
}

Error CudaCompute::open() {
  const Current current(device_);
  const RelaxedCapture relaxed(driver_);
  int least = 0;
  int greatest = 0;
  CUresult result = driver_.ctx_priority_range(&least, &greatest);
  if (result == kSuccess) result = driver_.stream_create(&stream_, kStreamNonBlocking, greatest);
  if (result != kSuccess) return device_.error("cuStreamCreateWithPriority", result);
  const Expected<Device::Turn> turn = device_.take_slot();
  if (!turn) return turn.error();
  tickets_ = turn->slot;
  last_ticket_ = tickets_->started();
  return {};
}

CudaCompute::~CudaCompute() {
  if (tickets_) {
    // Kernels wait for nobody, so this ends. Retired memory goes back while we still can take it.
    while (!reached({last_ticket_})) sched_yield();
    progress();
    device_.give_slot({tickets_, last_ticket_});
  }
  const Current current(device_);
  if (stream_) driver_.stream_destroy(stream_);
}

CUresult CudaCompute::launch(Implementation implementation, const void* args,
                             std::size_t args_bytes) {
  if (implementation == copy_) {
    const auto& copy = *static_cast<const CopyKernel::Args*>(args);
    if (copy.bytes == 0) return kSuccess;
    return driver_.memcpy_async(address_of(copy.out), address_of(copy.in), copy.bytes, stream_);
  }
  Launch packed{implementation, {}};
  if (!implementation || args_bytes > sizeof packed.args) return kErrorInvalidValue;
  std::memcpy(packed.args, args, args_bytes);
  return driver_.stub_launch(stream_, run_launch, &packed, sizeof packed);
}

Fence CudaCompute::submit(Implementation implementation, const void* args, std::size_t args_bytes,
                          std::size_t, Fence) {
  const Current current(device_);
  // `after` is a fence of this queue, and the queue is in order.
  return add_ticket(error_ ? kSuccess : launch(implementation, args, args_bytes));
}

Fence CudaCompute::write_after_all(std::uint64_t& word, std::uint64_t value) {
  const Current current(device_);
  if (error_) return {};
  return add_ticket(driver_.write_value64(stream_, address_of(&word), value, kWriteValueDefault));
}

Fence CudaCompute::add_ticket(CUresult launched) {
  const std::uint64_t ticket = ++last_ticket_;
  if (error_) return {ticket};
  if (launched == kSuccess) {
    launched =
        driver_.write_value64(stream_, address_of(&tickets_->start), ticket, kWriteValueDefault);
  }
  if (launched != kSuccess) error_ = device_.error("a CUDA kernel could not be launched", launched);
  return {ticket};
}

void CudaCompute::notify(FenceWait& wait) {
  wait.next = nullptr;
  (last_ ? last_->next : first_) = &wait;
  last_ = &wait;
}

// No descriptor tells that a kernel has ended, and kernels are shorter than naps.
bool CudaCompute::arm() {
  if (!first_) return true;
  sched_yield();
  return false;
}

bool CudaCompute::progress() {
  // Taken out before any is fired: who is fired may wait anew.
  FenceWait* due = nullptr;
  FenceWait** due_end = &due;
  FenceWait** link = &first_;
  last_ = nullptr;
  while (FenceWait* wait = *link) {
    if (reached(wait->fence)) {
      *link = wait->next;
      *due_end = wait;
      due_end = &wait->next;
    } else {
      last_ = wait;
      link = &wait->next;
    }
  }
  *due_end = nullptr;
  const bool any = due != nullptr;
  while (due) {
    FenceWait* wait = due;
    due = due->next;
    wait->reached(*wait);
  }
  return any;
}

}  // namespace pith::cuda
