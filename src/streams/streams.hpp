// The CUDA streams of a communicator: calls on them from the first one on, or prepared before.
// All of its calls are on streams of one device; what was prepared for another one is kept.
//
// By the thread that issues the calls, but where it is said otherwise.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "streams/stream_calls.hpp"

namespace pith {

class Streams {
 public:
  Streams(const StreamHost& host, const StreamOptions& options) : host_(host), options_(options) {}

  // While ranks connect: devices of other processes' ranks, by cuda::uuid_of.
  void set_devices_of_others(std::vector<std::string> devices) {
    options_.devices_of_others = std::move(devices);
  }
  // Starts the call when the CUDA stream gets there; the stream waits for its end, the caller does
  // not. `held`: the compressors of its tensors, if it has any; let go before the stream goes on.
  // Where the communicator is revoked they get the gradient all the same, and this says why it is.
  // Waits until those enqueued before it have ended here, but for the rest of its group: `grouped`
  // says that the last one belongs to it.
  Error enqueue(const CallArgs& args, void* stream, HeldCompressors held = {},
                bool grouped = false);
  // A sum that may turn out to be its candidate's.
  Error enqueue(const CallArgs& args, void* stream, LateChoice& choice, bool grouped);
  // Takes the memory that such a sum needs if it turns out to be its candidate's; fails where there
  // is none left. Before ranks agree on it: afterwards the others count on it.
  Error make_room(const CallArgs& args, void* stream, const LateChoice& choice);
  // Before and behind the calls of a group, given their streams, all different: where there are
  // several, all wait until the group's work begins, and for all of it to end.
  Error join(std::span<void* const> streams);
  // What calls on streams need is made now instead of at the first one, which may find its stream
  // waiting: kernels loaded, flags, scratch. `context`: a CUDA context; null: nothing is made. Of
  // another context's calls the first one makes it. So it does, and tells why, where this fails.
  void prepare(void* context);
  // That of the calls on streams, or for which they are prepared; null: neither.
  void* context() const { return calls_ ? calls_->context() : nullptr; }

  // With the engine's token, any thread. For a revoked communicator: what has not begun ends now.
  void abandon();
  // Any thread, while no call begins.
  bool unsettled() const { return calls_ && calls_->unsettled(); }
  bool may_be_replayed() const { return calls_ && calls_->may_be_replayed(); }

 private:
  Error open(const CallArgs& args, void* stream);
  Error open_of(cuda::Device& device);

  const StreamHost host_;
  StreamOptions options_;
  std::unique_ptr<StreamCalls> calls_;                // null: none yet
  std::vector<std::unique_ptr<StreamCalls>> unused_;  // prepared for other devices
};

}  // namespace pith
