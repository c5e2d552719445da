// One call on a CUDA stream: an eager one from enqueue to end, a captured one as long as graphs
// hold it. The object and its memory are then reused for another call.
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
  // Copies the arguments; the call owns what they point to from now on.
  void keep(const CollectiveArgs& given);
  void keep(const CompressedArgs& given);
  void keep(const PairArgs& given);

  StreamExecution& owner;
  CallArgs args;
  bool on_device = false;
  // A compressed call keeps its gradients even if the communicator is revoked, and the host
  // releases its compressors before the stream goes on.
  bool compressed = false;
  bool unsettled = false;                 // the stream waits until no peer touches its memory
  std::vector<Range> blocks;              // of a collective with uneven ones
  std::vector<Message> messages;          // of a point-to-point call
  std::vector<CompressedTensor> tensors;  // of a compressed call, or one that may become it
  HeldCompressors held;
  StreamDevice::Looks looks{};
  LateChoice* choice = nullptr;  // null once it is made
  RunningCall running;
  Task<Error> task;
};

// All call objects of a communicator, including the free ones. Any thread.
class StreamCallPool {
 public:
  // Returns a call without messages or tensors.
  StreamCall& take(StreamExecution& owner);
  void give_back(StreamCall& call);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<StreamCall>> all_;
  std::vector<StreamCall*> spare_;
};

}  // namespace pith
