// Calls on CUDA streams: what a communicator has of them from its first one on.
//
// A call starts when its stream reaches it, whatever the order among streams, and without a window:
// a stream can be inside one call only, so their number is that of the streams, and ranks whose
// streams arrive in different orders never wait for each other's windows.
// Messages: eager calls are numbered when they are enqueued, like all others. The k-th captured
// call has numbers of its own, k and a replay counter: ranks capture in the same order, each
// replays its calls in order, and how replays and eager calls interleave may differ between ranks.
// A sum that may yet be compressed (collectives/late_choice.hpp) starts when that is known, too.
// Compressed calls are not captured: each one is another step. Their compressors are let go before
// their streams go on, so that who has waited for a stream may use them.
// After an error every stream goes on all the same; Communicator::error() keeps what happened.
// Where peers reach memory of ours, a device's or the host's, it goes on only when they have let go
// of it, or after a limit.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/late_choice.hpp"
#include "comm/communicator.hpp"
#include "cuda/cuda_compute.hpp"
#include "cuda/peer_views.hpp"
#include "cuda/stream_gate.hpp"

namespace pith {

class StreamCalls {
 public:
  static Expected<std::unique_ptr<StreamCalls>> create(Communicator& communicator,
                                                       const CollectiveArgs& args, void* stream);
  ~StreamCalls();

  // Calling thread; never waits for the call.
  Error enqueue(CollectiveArgs args, void* stream, HeldCompressors held,
                LateChoice* choice = nullptr);
  // Driver of the engine: calls that no stream has reached end now. For revoked communicators.
  void abandon();

  // Calls for which the scratch reserved at enqueue was too small.
  std::uint64_t late_blocks() {
    return compute_->scratch().late_blocks() + pinned_.scratch().late_blocks();
  }

  // Whether streams still wait for peers to let go of their memory.
  bool unsettled() const { return unsettled_.busy(); }

  // Calls that no stream has reached yet: they touch nothing, and nobody's memory.
  int unreached() const { return unreached_.load(std::memory_order_relaxed); }

  // Numbers from here on belong to captured calls.
  static constexpr std::uint32_t captured_numbers = 1u << 31;

 private:
  struct StreamCall;
  // Failed calls whose memory peers may still touch; polled by the engine.
  class Unsettled final : public Pollable {
   public:
    explicit Unsettled(StreamCalls& owner) : owner_(owner) {}
    void add(StreamCall& call) {
      calls_.push_back(&call);
      count_.store(calls_.size(), std::memory_order_release);
    }
    void open_all();
    bool progress() override;
    bool busy() const override { return count_.load(std::memory_order_acquire) > 0; }
    int descriptor() const override { return -1; }
    bool arm() override;
    void disarm() override {}

   private:
    StreamCalls& owner_;
    std::vector<StreamCall*> calls_;
    std::atomic<std::size_t> count_{0};
  };
  // Calls that their streams have reached, and of which it is not known what they are.
  class Undecided final : public Pollable {
   public:
    explicit Undecided(StreamCalls& owner) : owner_(owner) {}
    void add(StreamCall& call) { calls_.push_back(&call); }
    bool progress() override;
    bool busy() const override { return !calls_.empty(); }
    int descriptor() const override { return -1; }
    bool arm() override;
    void disarm() override {}

   private:
    bool can_start(const StreamCall& call) const;

    StreamCalls& owner_;
    std::vector<StreamCall*> calls_;
  };
  StreamCalls(Communicator& communicator, cuda::Device& device,
              std::unique_ptr<cuda::CudaCompute> compute, bool reached_by_peers);
  void device_failed(const Error& error);
  Expected<cuda::Where> where_is(const void* memory) const;
  Error place(CollectiveArgs& args) const;
  Error place_tensors(std::span<CompressedTensor> tensors) const;
  Error place_compressors(const CollectiveArgs& args);
  Error check_not_captured(const CollectiveArgs& args, cuda::CUstream stream) const;
  Error check_context(const CollectiveArgs& args, cuda::CUstream stream) const;
  Error reserve(const CollectiveArgs& args, cuda::CUstream stream);
  StreamCall& take_call();
  Error admit(StreamCall& call);
  Error admit_captured(StreamCall& call);
  Error prepare(const CollectiveArgs& args, const LateChoice& choice, cuda::CUstream stream);
  void reach(StreamCall& call);
  void decide(StreamCall& call);
  void start(StreamCall& call);
  void end(StreamCall& call);
  void release(StreamCall& call);

  Communicator& communicator_;
  cuda::Device& device_;
  cuda::PinnedCompute pinned_;  // what the other one retires goes back here
  std::unique_ptr<cuda::CudaCompute> compute_;
  CallContext context_;
  std::optional<cuda::PeerViews> views_;  // none: not wanted, or no two ranks share memory
  cuda::StreamGate gate_;
  Unsettled unsettled_;
  Undecided undecided_;
  std::atomic<int> unreached_{0};
  DeviceVectors* vectors_ = nullptr;  // from the first compressed call on device memory on
  std::uint32_t captured_ = 0;
  PairNumbers captured_pairs_;
  std::vector<const void*> streams_;  // that have been used: how many calls may run at once
  std::size_t device_need_ = 0;
  std::size_t pinned_need_ = 0;
  std::mutex mutex_;  // guards the two lists
  std::vector<std::unique_ptr<StreamCall>> all_;
  std::vector<StreamCall*> spare_;
};

// Null where streams can be used; else why not.
Error check_streams();
// Device memory as far as the process knew the CUDA driver when it last looked for it, or has used
// a stream; costs a load where it did not.
void look_for_device_memory();
Expected<bool> is_device_memory(const void* memory);
// What a call on a stream is refused for otherwise: one buffer is pageable host memory, the other
// is not. Precondition, here and below: streams can be used.
bool are_apart(const void* send, const void* recv);
// The capture that a call would be part of; none where its stream is not being captured.
Expected<std::optional<std::uint64_t>> capture_of(const CollectiveArgs& args, void* stream);
// What NULL stands for where the memory is a device's.
void* legacy_stream();

}  // namespace pith
