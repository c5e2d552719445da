// Calls on CUDA streams: what a communicator has of them from its first one on, or from its
// beginning where its context is known by then. Here they are checked, given what they need, and
// enqueued; how they run then is in stream_execution.hpp.
//
// An eager call starts when its stream has reached it and those enqueued before it have ended here
// (stream_order.hpp), a captured one (captured_calls.hpp) when its stream reaches it; both without
// a window: a stream can be inside one call only, so their number is that of the streams, and ranks
// whose streams arrive in different orders never wait for each other's windows.
// Messages: eager calls are numbered when they are enqueued, like all others.
// A sum that may yet be compressed (collectives/late_choice.hpp) starts when that is known, too.
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
  // The calls of one device's streams; the communicator takes no call meanwhile.
  static Expected<std::unique_ptr<StreamCalls>> create(const StreamHost& host,
                                                       const StreamOptions& options,
                                                       cuda::Device& device);
  // The communicator has left the progress thread: nothing polls the gate any more.
  ~StreamCalls();
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  // Reserves what a first call needs. Calling thread, before any call.
  Error prepare();
  // Whether calls of this device come here; once one has, no other's do.
  bool serves(const cuda::Device& device) const { return &device == &device_->cuda(); }
  bool used() const { return used_; }
  void* context() const { return device_->cuda().context(); }

  // Calling thread; never waits for the call. `grouped`: in one group with the call before it.
  Error enqueue(CallArgs args, void* stream, HeldCompressors held, bool grouped,
                LateChoice* choice = nullptr);
  // Calling thread. Takes the memory that the choice needs if it is made.
  Error make_room(CallArgs args, void* stream, const LateChoice& choice);
  // Calling thread, before and behind the calls of a group: its streams begin and end together.
  // Those that belong to another context are left out; their calls are refused.
  Error join(std::span<void* const> streams);

  // Driver of the engine: calls that have not begun end now. For revoked communicators.
  void abandon() { execution_.abandon(); }
  // Any thread. Whether streams still wait for peers to let go of their memory.
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
  std::vector<cuda::CUstream> joined_;  // while they are
  StreamOrder order_;
  CapturedCalls captured_;
  StreamCallPool pool_;
  StreamExecution execution_;
  bool used_ = false;
};

}  // namespace pith
