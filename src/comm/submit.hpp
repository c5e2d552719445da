// Passes calls with checked arguments to the communicator: at once, in the background, on a stream,
// or when the group ends.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "comm/background.hpp"
#include "comm/communicator.hpp"

namespace pith {

// The communicator of a handle, and the result of the work that the handle has begun.
struct CallTarget {
  std::shared_ptr<Communicator> communicator;  // shared with groups in flight
  bool blocking = true;
  // For blocking = false: any thread may query the result while another one issues calls.
  mutable std::mutex guard;
  Background background;  // running work
  Error failure;          // of the last background work

  // A call is accepted, which discards the result of the last one. `work`: what the call has begun.
  void begin(Background work) {
    const std::lock_guard lock(guard);
    failure = Error();
    background = std::move(work);
  }
  void forget_failure() {
    const std::lock_guard lock(guard);
    failure = Error();
  }
};

inline Bytes bytes_at(const void* memory) {
  // Algorithms never write to what they send; one span type keeps them simple.
  return {const_cast<std::byte*>(static_cast<const std::byte*>(memory)), 0};
}

// Inside a group the call is collected, else it runs. `args` are completed in place, because
// copying them takes time that counts in a short call.
Error submit(CallTarget& target, CollectiveArgs& args, void* stream);
Error submit(CallTarget& target, Message message, void* stream);
// The compressor is claimed, and released when the call has ended or is refused.
Error submit(CallTarget& target, const std::shared_ptr<Compressor>& compressor,
             const CompressedTensor& tensor, void* stream);
// A call that is refused inside a group also fails the group.
Error failing_group(Error error);
inline Error conclude(Error error) { return error ? failing_group(std::move(error)) : Error(); }

}  // namespace pith
