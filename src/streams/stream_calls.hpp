// Calls on CUDA streams: what a communicator has of them from its first one on, or from its
// beginning where its context is known by then.
//
// An eager call starts when its stream has reached it and those enqueued before it have ended here
// (stream_order.hpp), a captured one when its stream reaches it; both without a window: a stream
// can be inside one call only, so their number is that of the streams, and ranks whose streams
// arrive in different orders never wait for each other's windows.
// Messages: eager calls are numbered when they are enqueued, like all others. Captured ones have
// numbers of their own (captured_numbers.hpp): ranks capture in the same order, each replays its
// calls in order, and how replays and eager calls interleave may differ between ranks.
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
#include <span>
#include <vector>

#include "collectives/late_choice.hpp"
#include "comm/bound_compressors.hpp"
#include "comm/call_runner.hpp"
#include "compress/held_compressors.hpp"
#include "cuda/cuda_compute.hpp"
#include "cuda/peer_access.hpp"
#include "cuda/stream_gate.hpp"
#include "cuda/stream_join.hpp"
#include "settings/settings.hpp"
#include "streams/captured_numbers.hpp"
#include "streams/stream_order.hpp"

namespace pith {

// What calls on streams have of their communicator, which outlives them.
struct StreamHost {
  CallRunner& runner;
  Links& links;
  RevocationState& revocation;
  BoundCompressors& compressors;
};

// By the settings and the other ranks.
struct StreamOptions {
  explicit StreamOptions(const Settings& settings);
  bool cuda_ipc;
  std::optional<bool> by_workers;  // null: where no other process's ranks use the device
  unsigned blocks;
  double warn_s;  // after how long a log line tells of a call that stands still
  std::vector<std::string> devices_of_others = {};  // of other processes' ranks, by cuda::uuid_of
};

class StreamCalls {
 public:
  // The calls of one device's streams; the communicator takes no call meanwhile.
  static Expected<std::unique_ptr<StreamCalls>> create(const StreamHost& host,
                                                       const StreamOptions& options,
                                                       cuda::Device& device);
  ~StreamCalls();

  // Reserves what a first call needs. Calling thread, before any call.
  Error prepare();
  // Whether calls of this device come here; once one has, no other's do.
  bool serves(const cuda::Device& device) const { return &device == &device_; }
  bool used() const { return used_; }
  void* context() const { return device_.context(); }

  // Calling thread; never waits for the call. `grouped`: in one group with the call before it.
  Error enqueue(CallArgs args, void* stream, HeldCompressors held, bool grouped,
                LateChoice* choice = nullptr);
  // Calling thread. Takes the memory that the choice needs if it is made.
  Error make_room(CallArgs args, void* stream, const LateChoice& choice);
  // Calling thread, before and behind the calls of a group: its streams begin and end together.
  // Those that belong to another context are left out; their calls are refused.
  Error join(std::span<void* const> streams);
  // Driver of the engine: calls that have not begun end now. For revoked communicators.
  void abandon();

  // Calls for which the scratch reserved at enqueue was too small.
  std::uint64_t late_blocks() {
    return compute_->scratch().late_blocks() + pinned_.scratch().late_blocks();
  }

  // Whether streams still wait for peers to let go of their memory.
  bool unsettled() const { return unsettled_.busy(); }

  // Whether graphs hold captured calls.
  bool may_be_replayed() const { return captured_alive_.load(std::memory_order_relaxed) > 0; }

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
  // Calls whose turn has come, and of which it is not known what they are.
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
    std::vector<StreamCall*> looked_at_;  // while it is
  };
  StreamCalls(const StreamHost& host, const StreamOptions& options, cuda::Device& device,
              std::unique_ptr<cuda::CudaCompute> compute);
  void device_failed(const Error& error);
  // What a call is refused for, by kind, before anything is taken for it: where its stream is being
  // captured, and once it is known where its memory is.
  Error check_capture(const CollectiveArgs& args, cuda::CUstream stream);
  Error check_capture(const CompressedArgs& args, cuda::CUstream stream);
  Error check_capture(const PairArgs& args, cuda::CUstream stream);
  Error check_placed(const CollectiveArgs& args);
  Error check_placed(const CompressedArgs& args);
  Error check_placed(const PairArgs& args);
  Error check_places(const CompressedArgs& args);
  Error place_compressors(const CompressedArgs& args);
  // Places them, and they are the communicator's: the call is refused for nothing any more.
  Error take_compressors(const CompressedArgs& args, const HeldCompressors& held);
  Error check_reached(const CompressedTensor& tensor) const;
  Error check_reached(const char* argument, const void* memory) const;
  template <class Args>
  Error check_numbers_left(const Args& args, cuda::CUstream stream);
  bool has_numbers_left(const CollectiveArgs& args);
  bool has_numbers_left(const PairArgs& args);
  Error check_context(const CallArgs& args, cuda::CUstream stream) const;
  Error reserve(const CallArgs& args, cuda::CUstream stream);
  // What the call has claimed and looked at, when it needs no more of it.
  void let_go(StreamCall& call);
  void let_go_of_memory(StreamCall& call);
  void warn_of_priority(cuda::CUstream stream) const;
  Error copy(const CollectiveArgs& args, cuda::CUstream stream) const;
  StreamCall& take_call();
  void admit(StreamCall& call, cuda::CUstream stream);
  void admit_captured(StreamCall& call);
  void forget_captured(StreamCall& call);
  void reach(StreamCall& call);
  Error prepare_compressed(const CallArgs& args, const LateChoice& choice, cuda::CUstream stream);
  void begin(StreamCall& call);
  void decide(StreamCall& call);
  void start(StreamCall& call);
  void end(StreamCall& call);
  void release(StreamCall& call);
  void give_back(StreamCall& call);

  const StreamHost host_;
  cuda::Device& device_;
  cuda::PinnedCompute pinned_;                  // what the other one retires goes back here
  std::optional<cuda::PeerAccess> views_;       // none: not wanted, or no two ranks share memory
  std::unique_ptr<cuda::CudaCompute> compute_;  // ends first: its kernels use what views_ unmaps
  CallContext context_;
  cuda::StreamGate gate_;
  cuda::StreamJoin join_;
  std::vector<cuda::CUstream> joined_;  // while they are
  StreamOrder order_;
  Unsettled unsettled_;
  Undecided undecided_;
  bool used_ = false;
  DeviceVectors* vectors_ = nullptr;    // from the first compressed call on device memory on
  std::atomic<int> captured_alive_{0};  // whose graphs are not known to be gone
  std::vector<const void*> streams_;    // that have been used: how many calls may run at once
  std::size_t device_need_ = 0;
  std::size_t pinned_need_ = 0;
  std::mutex mutex_;  // guards the next four
  CapturedNumbers captured_;
  CapturedPairs captured_pairs_;
  std::vector<std::unique_ptr<StreamCall>> all_;
  std::vector<StreamCall*> spare_;
};

}  // namespace pith
