// The compute seam on CUDA memory: one internal stream, which writes a ticket (the fence) into
// pinned memory behind each kernel. With workers, steps of calls whose streams have arrived run on
// a worker instead.
//
// Threads: the one that drives the engine; reserve() from any.
#pragma once

#include <memory>

#include "core/compute.hpp"
#include "core/peer_memory.hpp"
#include "core/pollable.hpp"
#include "cuda/failure_probe.hpp"
#include "cuda/launch_queue.hpp"
#include "cuda/network_reach.hpp"
#include "cuda/scratch_pool.hpp"

namespace pith::cuda {

class CudaCompute final : public Compute, public Pollable, public ReachedByPeers {
 public:
  // Loads the device's kernels if necessary; fails if this build has none.
  // `worker_blocks`: blocks of each worker; 0: no workers, every step is launched.
  // `most_shared`: maximum blocks of a launched kernel that touches other ranks' memory.
  static constexpr unsigned usual_blocks = 32;
  static Expected<std::unique_ptr<CudaCompute>> create(Device& device, unsigned worker_blocks = 0,
                                                       unsigned most_shared = usual_blocks);
  ~CudaCompute() override;

  MemoryKind kind() const override { return MemoryKind::cuda; }
  bool reached(Fence fence) const override;
  // The fence may already be reached: the stream goes on between the caller's check and this.
  void notify(FenceWait& wait) override;
  bool progress() override;
  std::byte* take_scratch(std::size_t bytes) override { return scratch_.take(bytes); }
  void give_scratch(std::byte* memory, std::size_t bytes) override { scratch_.give(memory, bytes); }

  std::uint64_t network_memory() const override { return network_->memory(); }
  MemoryExporter* exporter() override { return network_->exports() ? &*network_ : nullptr; }
  void see_network_writes() override;
  std::shared_ptr<void> withhold_scratch(std::byte*, std::size_t) override {
    return scratch_.withhold();
  }

  // Counts calls that wait for a user's stream rather than for a fence; busy() while it is not 0.
  void watch_while(const std::atomic<int>* calls) { calls_ = calls; }
  bool busy() const override {
    return first_ || (calls_ && calls_->load(std::memory_order_relaxed) > 0);
  }
  int descriptor() const override { return -1; }
  bool arm() override;
  void disarm() override {}

  // Blocks until the fence is reached. No other thread may drive progress() meanwhile.
  void wait(Fence fence);
  // Of the internal stream.
  int priority() const { return priority_; }
  // For stream gates; null: no workers.
  WorkerQueue* workers() { return workers_.get(); }
  // The user's stream has reached a call that is going to submit steps.
  void enter(StreamEntry& entry);
  // Releases the user's stream, without the host, when everything submitted so far has run.
  Fence open_after_all(StreamEntry& entry);
  // Releases the user's stream: at once, or when its worker has run its steps. Returns that fence.
  Fence open(StreamEntry& entry);
  // The driver's refusal, if any. After it no submission runs, and every fence counts as reached.
  const Error& error() const { return error_; }
  // Calls `told` as soon as an error occurs, before anyone uses what kernels should have written.
  void on_error(void (*told)(void* owner, const Error& error), void* owner) {
    told_ = told;
    owner_ = owner;
  }
  // For the owner that was told: clears the error. Precondition: nothing waits for a fence.
  void begin_anew() {
    error_ = Error();
    lost_ = false;
    probe_->forget();
  }
  ScratchPool& scratch() { return scratch_; }
  PeerMemory* peer_memory() const override { return peers_; }
  void set_peer_memory(PeerMemory* peers) { peers_ = peers; }

 protected:
  Fence submit(Implementation implementation, const void* args, std::size_t args_bytes,
               std::size_t work_bytes, Fence after) override;

 private:
  explicit CudaCompute(Device& device);
  Error open(unsigned worker_blocks, unsigned most_shared);
  Error ask_about_device();
  Fence add_ticket(CUresult launched);
  bool by_worker() const { return workers_ && workers_->serves(); }
  CUresult write_ticket(std::uint64_t ticket);
  void wait_for_workers();
  void fail(const char* what, CUresult result);
  void note_state(CUresult state);
  void look_if_late();

  Device& device_;
  const Driver& driver_;
  int priority_ = 0;
  std::optional<NetworkReach> network_;  // once the device has been asked
  PeerMemory* peers_ = nullptr;
  CUstream stream_ = nullptr;
  Slot* tickets_ = nullptr;  // `start` holds the last ticket that the stream has passed
  std::uint64_t last_ticket_ = 0;
  std::uint64_t written_ = 0;  // the last ticket whose write has been enqueued
  Error error_;
  void (*told_)(void* owner, const Error& error) = nullptr;
  void* owner_ = nullptr;
  const std::atomic<int>* calls_ = nullptr;
  bool lost_ = false;          // nothing that was enqueued on the stream will run any more
  unsigned rounds_ = 0;        // of polling
  std::uint64_t seen_ = 0;     // the last ticket that progress() has seen passed
  std::uint64_t seen_ns_ = 0;  // time of the last look; 0: none in this wait
  FenceWait* first_ = nullptr;
  FenceWait* last_ = nullptr;
  ScratchPool scratch_;
  std::uint64_t last_of_workers_ = 0;  // the last ticket that a worker is to write
  std::unique_ptr<FailureProbe> probe_;
  std::unique_ptr<WorkerQueue> workers_;
  std::unique_ptr<LaunchQueue> queue_;
};

// Host memory for the same calls: scratch is pinned, so that copies to and from the device are
// asynchronous; kernels run inline.
class PinnedCompute final : public Compute {
 public:
  PinnedCompute(Device& device, const Compute& host_kernels) : scratch_(device, MemoryKind::host) {
    adopt_kernels(host_kernels);
  }
  MemoryKind kind() const override { return MemoryKind::host; }
  bool reached(Fence) const override { return true; }
  void notify(FenceWait& wait) override { wait.reached(wait); }
  bool progress() override { return false; }
  std::byte* take_scratch(std::size_t bytes) override { return scratch_.take(bytes); }
  void give_scratch(std::byte* memory, std::size_t bytes) override { scratch_.give(memory, bytes); }
  ScratchPool& scratch() { return scratch_; }

 protected:
  Fence submit(Implementation implementation, const void* args, std::size_t, std::size_t,
               Fence) override {
    implementation(args);
    return {};
  }

 private:
  ScratchPool scratch_;
};

}  // namespace pith::cuda
