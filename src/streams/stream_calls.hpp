// The calls of a communicator on CUDA streams. They are checked, given what they need and enqueued
// here; stream_execution.hpp runs them. The object is made with the communicator if its context is
// known by then, else at the first call.
//
// An eager call starts when its stream reaches it and the calls enqueued before it have ended here
// (stream_order.hpp), a captured one (captured_calls.hpp) when its stream reaches it. The number of
// running calls is not limited, except that a stream is inside one call at a time: with a limit,
// ranks whose streams arrive in different orders could wait for each other. Eager messages are
// numbered when they are enqueued, like all calls. A sum whose compression is still undecided
// (collectives/late_choice.hpp) also waits for the decision.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/late_choice.hpp"
#include "compress/held_compressors.hpp"
#include "cuda/stream_gate.hpp"
#include "cuda/stream_join.hpp"
#include "streams/captured_calls.hpp"
#include "streams/stream_call.hpp"
#include "streams/stream_checks.hpp"
#include "streams/stream_compressors.hpp"
#include "streams/stream_device.hpp"
#include "streams/stream_execution.hpp"
#include "streams/stream_host.hpp"
#include "streams/stream_options.hpp"
#include "streams/stream_order.hpp"
#include "streams/stream_scratch.hpp"

namespace pith {

class StreamCalls {
 public:
  // For the streams of one device. The communicator takes no call meanwhile.
  static Expected<std::unique_ptr<StreamCalls>> create(const StreamHost& host,
                                                       const StreamOptions& options,
                                                       cuda::Device& device);
  // Precondition: the communicator has left the progress thread, so nothing polls the gate.
  ~StreamCalls();
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  // Reserves what a first call needs. Calling thread, before any call.
  Error prepare();
  // Whether this object takes the device's calls. Once it is used, calls of other devices are
  // refused.
  bool serves(const cuda::Device& device) const { return &device == &device_->cuda(); }
  bool used() const { return used_; }
  void* context() const { return device_->cuda().context(); }

  // Calling thread; does not wait for the call. `grouped`: in one group with the call before it.
  Error enqueue(CallArgs args, void* stream, HeldCompressors held, bool grouped,
                LateChoice* choice = nullptr);
  // Calling thread. Reserves the memory that the choice needs if it is compressed.
  Error make_room(CallArgs args, void* stream, const LateChoice& choice);
  // Calling thread, before and after the calls of a group: its streams begin and end together.
  // Streams of another context are left out, since their calls are refused.
  Error join(std::span<void* const> streams);

  // Driver of the engine. Ends the calls of a revoked communicator that have not begun.
  void abandon() { execution_.abandon(); }
  // Any thread. Whether streams still wait for peers to stop touching their memory.
  bool unsettled() const { return execution_.unsettled(); }
  // Any thread. Whether graphs hold captured calls.
  bool may_be_replayed() const { return captured_.any(); }

 private:
  StreamCalls(const StreamHost& host, const StreamOptions& options,
              std::unique_ptr<StreamDevice> device);
  void device_failed(const Error& error);
  Error check_and_place(CallArgs& args, cuda::CUstream stream);
  Error reserve(const CallArgs& args, cuda::CUstream stream, const HeldCompressors& held,
                const LateChoice* choice);
  Error prepare_compressed(const CallArgs& args, const LateChoice& choice, cuda::CUstream stream);
  Error copy(const CollectiveArgs& args, cuda::CUstream stream) const;
  StreamCall& take_call(const CallArgs& args, HeldCompressors held, LateChoice* choice);

  const StreamHost host_;
  const std::unique_ptr<StreamDevice> device_;
  StreamScratch scratch_;
  StreamCompressors compressors_;
  StreamChecks checks_;
  cuda::StreamGate gate_;
  cuda::StreamJoin join_;
  std::vector<cuda::CUstream> joined_;  // scratch of join()
  StreamOrder order_;
  CapturedCalls captured_;
  StreamCallPool pool_;
  StreamExecution execution_;
  bool used_ = false;
};

}  // namespace pith
