#include "cuda/cuda_compute.hpp"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "core/clock.hpp"
#include "cuda/dense_launchers.hpp"
#include "cuda/sparse_launchers.hpp"
#include "cuda/stream_gate.hpp"

namespace pith::cuda {

CudaCompute::CudaCompute(Device& device)
    : device_(device), driver_(device.driver()), scratch_(device, MemoryKind::cuda) {
  set<ReduceKernel, launch_reduce>();
  set<ReduceManyKernel, launch_reduce_many>();
  set<FinishAvgKernel, launch_finish_avg>();
  set<ScaleKernel, launch_scale>();
  set<CopyKernel, launch_copy>();
  set<AccumulateKernel, launch_accumulate>();
  set<SelectKernel, launch_select>();
  set<DrawKernel, launch_draw>();
  set<MomentumKernel, launch_momentum>();
  set<SampleKernel, launch_sample>();
  set<HistogramKernel, launch_histogram>();
  set<KeepLargestKernel, launch_keep_largest>();
  set<SplitKernel, launch_split>();
  set<SquaresKernel, launch_squares>();
  set<TakeKernel, launch_take>();
  set<RoundKernel, launch_round>();
  set<ReturnKernel, launch_return>();
  set<SumValuesKernel, launch_sum_values>();
  set<SumListsKernel, launch_sum_lists>();
  set<ScatterKernel, launch_scatter>();
  set<ConvertKernel, launch_convert>();
  set<ZeroKernel, launch_zero>();
  set<FillNanKernel, launch_fill_nan>();
  set<EncodeValuesKernel, launch_encode_values>();
  set<DecodeValuesKernel, launch_decode_values>();
  set<ProjectKernel, launch_project>();
  set<BackProjectKernel, launch_back_project>();
  set<AddProductKernel, launch_add_product>();
  set<PutProductKernel, launch_put_product>();
  set<EncodeIndicesKernel, launch_encode_indices>();
  set<DecodeIndicesKernel, launch_decode_indices>();
}

Expected<std::unique_ptr<CudaCompute>> CudaCompute::create(Device& device, unsigned worker_blocks,
                                                           unsigned most_shared) {
  std::unique_ptr<CudaCompute> made(new CudaCompute(device));
  if (Error error = made->open(worker_blocks, most_shared)) return error;
  return made;
}

Error CudaCompute::open(unsigned worker_blocks, unsigned most_shared) {
  const Current current(device_);
  const RelaxedCapture relaxed(driver_);
  if (Error error = ask_about_device()) return error;
  int least = 0;
  CUresult result = driver_.ctx_priority_range(&least, &priority_);
  if (result == kSuccess) result = driver_.stream_create(&stream_, kStreamNonBlocking, priority_);
  if (result != kSuccess) return device_.error("cuStreamCreateWithPriority", result);
  probe_ = std::make_unique<FailureProbe>(device_, stream_);
  const Expected<const KernelSet*> kernels = device_.kernels();
  if (!kernels) return kernels.error();
  const Expected<Device::Turn> turn = device_.take_slot();
  if (!turn) return turn.error();
  tickets_ = turn->slot;
  written_ = last_ticket_ = last_of_workers_ = tickets_->started();
  if (worker_blocks > 0) {
    Expected<std::unique_ptr<WorkerQueue>> workers =
        WorkerQueue::create(device_, *tickets_, stream_, *probe_, worker_blocks);
    if (!workers) return workers.error();
    workers_ = std::move(*workers);
  }
  queue_ = std::make_unique<LaunchQueue>(device_, **kernels, stream_, scratch_, workers_.get(),
                                         most_shared);
  return {};
}

// Precondition: the context is current.
Error CudaCompute::ask_about_device() {
  CUdevice device = 0;
  int words = 0;
  CUresult result = driver_.ctx_get_device(&device);
  if (result == kSuccess) {
    result = driver_.device_attribute(&words, kDevice64BitStreamMemOps, device);
  }
  if (result != kSuccess) return device_.error("cuDeviceGetAttribute", result);
  if (words == 0) {
    return {Code::cuda, "the CUDA device's streams neither write nor await words of 64 bits"};
  }
  network_.emplace(device_);
  return {};
}

void CudaCompute::see_network_writes() {
  const CUresult flushed = network_->see_writes();
  if (flushed != kSuccess) fail("cuFlushGPUDirectRDMAWrites", flushed);
}

CudaCompute::~CudaCompute() {
  if (tickets_) {
    // Terminates, since kernels wait for nothing. Retired memory is collected while we can.
    wait({last_ticket_});
    progress();
    device_.give_slot({tickets_, written_});
  }
  probe_.reset();
  const Current current(device_);
  if (stream_) driver_.stream_destroy(stream_);
}

bool CudaCompute::reached(Fence fence) const {
  if (fence.ticket > last_ticket_) return static_cast<bool>(error_);  // core/failed_queue.hpp
  return std::min(fence.ticket, written_) <= tickets_->started() || lost_;
}

Fence CudaCompute::submit(Implementation implementation, const void* args, std::size_t, std::size_t,
                          Fence) {
  // A step for a worker goes through the ring, without a driver call.
  std::optional<Current> current;
  if (!by_worker()) current.emplace(device_);
  // `after` can be ignored: it is a fence of this queue, which runs in order.
  wait_for_workers();
  if (!implementation) return add_ticket(kErrorNotSupported);
  return add_ticket(error_ ? kSuccess : queue_->run(implementation, args));
}

// Launched kernels must run after the steps that were given to the last worker.
void CudaCompute::wait_for_workers() {
  if (error_ || !workers_ || by_worker()) return;
  if (last_of_workers_ <= tickets_->started()) return;
  const CUresult waits =
      driver_.wait_value64(stream_, address_of(&tickets_->start), last_of_workers_, kWaitValueGeq);
  if (waits != kSuccess) fail("a stream memory operation", waits);
}

void CudaCompute::enter(StreamEntry& entry) {
  if (workers_) workers_->enter(entry, written_);
}

Fence CudaCompute::open_after_all(StreamEntry& entry) {
  if (entry.stay == Stay::entered) {
    const std::uint64_t ticket = ++last_ticket_;
    if (!workers_->push_leave(entry) || !workers_->publish(ticket)) {
      fail("the CUDA device has failed", kErrorLaunchFailed);
      lost_ = true;
      return {ticket};
    }
    // Also after an error: a running worker must be told to leave.
    written_ = last_of_workers_ = ticket;
    return {ticket};
  }
  if (error_) return {last_ticket_};
  const Current current(device_);
  return add_ticket(driver_.write_value64(stream_, address_of(&StreamGate::end_of(entry)),
                                          entry.value, kWriteValueDefault));
}

Fence CudaCompute::open(StreamEntry& entry) {
  if (entry.stay == Stay::entered) return open_after_all(entry);
  if (entry.stay == Stay::waits) StreamGate::open(entry);
  return {};
}

CUresult CudaCompute::write_ticket(std::uint64_t ticket) {
  if (!by_worker()) {
    return driver_.write_value64(stream_, address_of(&tickets_->start), ticket, kWriteValueDefault);
  }
  if (!workers_->publish(ticket)) return kErrorLaunchFailed;
  last_of_workers_ = ticket;
  return kSuccess;
}

Fence CudaCompute::add_ticket(CUresult launched) {
  const std::uint64_t ticket = ++last_ticket_;
  if (error_) return {ticket};
  // A kernel of several launches may be refused half-way; the launches before still run.
  const CUresult written = write_ticket(ticket);
  if (written == kSuccess) {
    written_ = ticket;
  } else {
    // Without a ticket nothing would tell when the kernels that run stop using their memory.
    const RelaxedCapture relaxed(driver_);
    driver_.stream_synchronize(stream_);
  }
  if (launched == kSuccess) launched = written;
  if (launched == kSuccess) return {ticket};
  fail("a CUDA kernel could not be launched", launched);
  note_state(device_.failure(stream_));
  return {ticket};
}

void CudaCompute::fail(const char* what, CUresult result) {
  if (error_) return;
  error_ = device_.error(what, result);
  if (told_) told_(owner_, error_);
}

// A failed device runs none of its pending work, so nothing may wait for that work.
void CudaCompute::note_state(CUresult state) {
  if (state == kSuccess) return;
  fail("the CUDA device has failed", state);
  lost_ = true;
}

// A failed device writes no ticket and reports nothing by itself.
void CudaCompute::look_if_late() {
  constexpr unsigned rounds_a_look = 64;
  constexpr std::uint64_t late_ns = 100'000'000;
  if (lost_ || ++rounds_ % rounds_a_look != 0) return;
  const std::uint64_t now_ns = monotonic_ns();
  const std::uint64_t passed = tickets_->started();
  if (seen_ns_ != 0 && passed == seen_ && now_ns - seen_ns_ < late_ns) return;
  if (seen_ns_ != 0 && passed == seen_) note_state(probe_->look());
  seen_ = passed;
  seen_ns_ = now_ns;
}

void CudaCompute::wait(Fence fence) {
  for (seen_ns_ = 0; !reached(fence); look_if_late()) {
    if (workers_) workers_->progress();
    sched_yield();
  }
}

void CudaCompute::notify(FenceWait& wait) {
  if (!first_) seen_ns_ = 0;
  wait.next = nullptr;
  (last_ ? last_->next : first_) = &wait;
  last_ = &wait;
}

// No descriptor signals the end of a kernel, and kernels are shorter than a sleep.
bool CudaCompute::arm() {
  if (!first_) return true;
  sched_yield();
  return false;
}

bool CudaCompute::progress() {
  if (workers_) workers_->progress();
  // All due waits are unlinked before any is notified: a notified one may register again.
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
  if (!any && busy()) look_if_late();
  while (due) {
    FenceWait* wait = due;
    due = due->next;
    wait->reached(*wait);
  }
  return any;
}

}  // namespace pith::cuda
