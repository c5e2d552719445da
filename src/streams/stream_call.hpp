// One call on a CUDA stream: an eager one from when it is enqueued until it has ended, a captured
// one as long as graphs hold it. Then it is another call's, with the memory that it holds.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "collectives/late_choice.hpp"
#include "comm/call_runner.hpp"
#include "compress/held_compressors.hpp"
#include "cuda/stream_gate.hpp"
#include "streams/stream_device.hpp"
#include "streams/stream_order.hpp"

namespace pith {

class StreamExecution;

struct StreamCall : cuda::StreamEntry, Work, StreamOrder::Entry {
  explicit StreamCall(StreamExecution& o);
  // What the arguments point to is the call's own from now on.
  void keep(const CollectiveArgs& given);
  void keep(const CompressedArgs& given);
  void keep(const PairArgs& given);

  StreamExecution& owner;
  CallArgs args;
  bool on_device = false;
  // It has gradients to keep, also where the communicator is revoked; and compressors, which the
  // host lets go of before the stream goes on.
  bool compressed = false;
  bool unsettled = false;         // the stream may go on only when no peer touches its memory
  std::vector<Message> messages;  // of messages of pairs
  std::vector<CompressedTensor> tensors;  // of a compressed call, or one that may become it
  HeldCompressors held;
  StreamDevice::Looks looks{};
  LateChoice* choice = nullptr;  // until it is made
  RunningCall running;
  Task<Error> task;
};

// All of a communicator's, and those that are to be used again. Any thread.
class StreamCallPool {
 public:
  // With nothing of the call that it was.
  StreamCall& take(StreamExecution& owner);
  void give_back(StreamCall& call);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<StreamCall>> all_;
  std::vector<StreamCall*> spare_;
};

}  // namespace pith
