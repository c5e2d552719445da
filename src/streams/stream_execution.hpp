// Runs calls on streams from enqueue until the stream goes on.
//
// enqueued -> reached -> begun, in order -> decided, if that is open -> started -> ended ->
// released
//
// A released captured call is started again by its next replay; a released eager call is reused for
// another call. After an error the streams go on all the same, and RevocationState::error() keeps
// the error. Compressors are released before their streams go on, so that a thread that waited for
// a stream may use them. If peers reach our memory, on the device or the host, a failed call is
// released only when they are done with it, or after a limit. Functions are for the driver of the
// engine unless they say otherwise.
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
  // Precondition: no thread drives the engine.
  ~StreamExecution() { unsettled_.open_all(); }
  StreamExecution(const StreamExecution&) = delete;
  StreamExecution& operator=(const StreamExecution&) = delete;

  // With the engine's token.
  void poll_with(Engine& engine);
  // Calling thread, after the stream was given the call.
  void admit(StreamCall& call, cuda::CUstream stream);
  // Ends the eager calls of a revoked communicator that have not begun.
  void abandon();
  // Any thread. Whether streams still wait for peers to stop touching their memory.
  bool unsettled() const { return unsettled_.any(); }
  // Releases the compressors and looks of a call that needs them no more.
  void let_go(StreamCall& call);
  FrameArena& frame_arena() const { return host_.links.engine().arena(); }

  // The stream has reached the call.
  void reach(StreamCall& call);
  // The call's turn has come.
  void begin(StreamCall& call) { call.choice ? undecided_.add(call) : start(call); }
  // The call's graphs are gone.
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
