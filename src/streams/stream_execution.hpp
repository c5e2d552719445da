// How calls on streams run, once they are enqueued: what becomes of one when its stream reaches it,
// until the stream goes on.
//
// enqueued -> reached -> begun, in order -> decided, if that is open -> started -> ended ->
// released
//
// A captured call is released to be started again by its next replay; an eager one to be another
// call. After an error every stream goes on all the same; RevocationState::error() keeps what
// happened. Compressors are let go before their streams go on, so that who has waited for a stream
// may use them. Where peers reach memory of ours, a device's or the host's, a failed call is
// released only when they have let go of it, or after a limit.
// Driver of the engine, unless it is said otherwise.
#pragma once

#include "core/engine.hpp"
#include "cuda/stream_gate.hpp"
#include "streams/captured_calls.hpp"
#include "streams/stream_call.hpp"
#include "streams/stream_host.hpp"
#include "streams/stream_order.hpp"
#include "streams/undecided_calls.hpp"
#include "streams/unsettled_calls.hpp"

namespace pith {

class StreamExecution {
 public:
  StreamExecution(const StreamHost& host, StreamDevice& device, cuda::StreamGate& gate,
                  StreamOrder& order, CapturedCalls& captured, StreamCallPool& pool);
  // Nobody drives the engine any more.
  ~StreamExecution() { unsettled_.open_all(); }
  StreamExecution(const StreamExecution&) = delete;
  StreamExecution& operator=(const StreamExecution&) = delete;

  // With the engine's token.
  void poll_with(Engine& engine);
  // Calling thread. The stream has been given the call.
  void admit(StreamCall& call, cuda::CUstream stream);
  // Eager calls that have not begun end now. For revoked communicators.
  void abandon();
  // Any thread. Whether streams still wait for peers to let go of their memory.
  bool unsettled() const { return unsettled_.any(); }
  // What the call has claimed and looked at, when it needs no more of it.
  void let_go(StreamCall& call);
  FrameArena& frame_arena() const { return host_.links.engine().arena(); }

  // The stream has got there.
  void reach(StreamCall& call);
  // Its turn has come.
  void begin(StreamCall& call) { call.choice ? undecided_.add(call) : start(call); }
  // Its graphs are gone.
  void forget(StreamCall& call);

 private:
  void decide(StreamCall& call);
  void start(StreamCall& call);
  Task<Error> run(StreamCall& call);
  void end(StreamCall& call);
  void drop(StreamCall& call);
  void open(StreamCall& call);
  void release(StreamCall& call);
  void give_back(StreamCall& call);

  const StreamHost host_;
  StreamDevice& device_;
  cuda::StreamGate& gate_;
  StreamOrder& order_;
  CapturedCalls& captured_;
  StreamCallPool& pool_;
  UndecidedCalls undecided_;
  UnsettledCalls unsettled_;
};

}  // namespace pith
