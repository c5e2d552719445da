// The calls of a communicator on CUDA streams, set up by the first one or prepared before. All
// calls are on streams of one device; what was prepared for another one is kept.
//
// Used by the thread that issues the calls, unless a function says otherwise.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "streams/stream_calls.hpp"

namespace pith {

class Streams {
 public:
  Streams(const StreamHost& host, const StreamOptions& options) : host_(host), options_(options) {}

  // Called while ranks connect: the devices of ranks in other processes, as cuda::uuid_of.
  void set_devices_of_others(std::vector<std::string> devices) {
    options_.devices_of_others = std::move(devices);
  }
  // Starts the call when the CUDA stream reaches it; the stream waits for its end, the caller does
  // not. The call also waits until those enqueued before it have ended here, except those of its
  // group. `grouped`: it is in one group with the call before it. `held`: the compressors of its
  // tensors, if any, released before the stream goes on. If the communicator is revoked they still
  // get the gradient, and the error is returned.
  Error enqueue(const CallArgs& args, void* stream, HeldCompressors held = {},
                bool grouped = false);
  // Enqueues a sum that may later be decided to run compressed.
  Error enqueue(const CallArgs& args, void* stream, LateChoice& choice, bool grouped);
  // Reserves the memory that such a sum needs if it is compressed; fails if there is none left.
  // Called before ranks agree on the choice: afterwards the others rely on it.
  Error make_room(const CallArgs& args, void* stream, const LateChoice& choice);
  // Called before and after the calls of a group with its streams, all different. If there are
  // several, all wait until the group's work begins, and for all of it to end.
  Error join(std::span<void* const> streams);
  // Loads kernels and makes flags and scratch now instead of at the first call, which may find its
  // stream waiting. `context`: a CUDA context; null: does nothing. A first call on another context,
  // or after an error here, which is logged, makes what it needs itself.
  void prepare(void* context);
  // The context of the calls on streams, or the one prepared for; null: neither.
  void* context() const { return calls_ ? calls_->context() : nullptr; }

  // With the engine's token, any thread. Ends the calls of a revoked communicator that have not
  // begun.
  void abandon();
  // Any thread, while no call begins.
  bool unsettled() const { return calls_ && calls_->unsettled(); }
  bool may_be_replayed() const { return calls_ && calls_->may_be_replayed(); }

 private:
  Error open(const CallArgs& args, void* stream);
  Error open_of(cuda::Device& device);

  const StreamHost host_;
  StreamOptions options_;
  std::unique_ptr<StreamCalls> calls_;                // null: not set up yet
  std::vector<std::unique_ptr<StreamCalls>> unused_;  // prepared for other devices
};

}  // namespace pith
