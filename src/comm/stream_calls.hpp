// Calls on CUDA streams: what a communicator has of them from its first one on.
//
// A call starts when its stream reaches it, whatever the order among streams, and without a window:
// a stream can be inside one call only, so their number is that of the streams, and ranks whose
// streams arrive in different orders never wait for each other's windows.
// Messages: eager calls are numbered when they are enqueued, like all others. The k-th captured
// call has numbers of its own, k and a replay counter: ranks capture in the same order, each
// replays its calls in order, and how replays and eager calls interleave may differ between ranks.
// Compressed calls are not captured: each one is another step. Their compressors are let go before
// their streams go on, so that who has waited for a stream may use them.
// After an error every stream goes on all the same; Communicator::error() keeps what happened.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "comm/communicator.hpp"
#include "cuda/cuda_compute.hpp"
#include "cuda/stream_gate.hpp"

namespace pith {

class StreamCalls {
 public:
  static Expected<std::unique_ptr<StreamCalls>> create(Communicator& communicator, void* stream);
  ~StreamCalls();

  // Calling thread; never waits for the call.
  Error enqueue(CollectiveArgs args, void* stream, HeldCompressors held);
  // Driver of the engine: calls that no stream has reached end now. For revoked communicators.
  void abandon();

  // Calls for which the scratch reserved at enqueue was too small.
  std::uint64_t late_blocks() {
    return compute_->scratch().late_blocks() + pinned_.scratch().late_blocks();
  }

  // Numbers from here on belong to captured calls.
  static constexpr std::uint32_t captured_numbers = 1u << 31;

 private:
  struct StreamCall;
  StreamCalls(Communicator& communicator, cuda::Device& device,
              std::unique_ptr<cuda::CudaCompute> compute);
  bool is_pageable(const Bytes& memory) const;
  Error place(CollectiveArgs& args) const;
  Error place_tensors(std::span<CompressedTensor> tensors) const;
  Error place_compressors(const CollectiveArgs& args);
  Error check_not_captured(const CollectiveArgs& args, cuda::CUstream stream) const;
  Error reserve(const CollectiveArgs& args, cuda::CUstream stream);
  StreamCall& take_call();
  Error admit(StreamCall& call);
  Error admit_captured(StreamCall& call);
  void start(StreamCall& call);
  void end(StreamCall& call);

  Communicator& communicator_;
  cuda::Device& device_;
  cuda::PinnedCompute pinned_;  // what the other one retires goes back here
  std::unique_ptr<cuda::CudaCompute> compute_;
  CallContext context_;
  cuda::StreamGate gate_;
  DeviceVectors* vectors_ = nullptr;  // from the first compressed call on device memory on
  std::uint32_t captured_ = 0;
  PairNumbers captured_pairs_;
  std::vector<cuda::CUstream> streams_;  // that have been used: how many calls may run at once
  std::size_t device_need_ = 0;
  std::size_t pinned_need_ = 0;
  std::mutex mutex_;  // guards the two lists
  std::vector<std::unique_ptr<StreamCall>> all_;
  std::vector<StreamCall*> spare_;
};

// Null where streams can be used; else why not.
Error check_streams();
// Device memory as far as the process knows the CUDA driver at all; costs a load where it does not.
bool is_device_memory(const void* memory);

}  // namespace pith
