// From checked arguments to the communicator: at once, in the background, on a stream, or when the
// group ends.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "comm/background.hpp"
#include "comm/communicator.hpp"

namespace pith {

// Where a handle's calls go, and what has become of those that it has begun.
struct CallTarget {
  std::shared_ptr<Communicator> communicator;  // shared with groups in flight
  bool blocking = true;
  // blocking = false: any thread may ask what has become of them while another one issues calls.
  mutable std::mutex guard;
  Background background;  // what has begun
  Error failure;          // of the last that was begun so

  // A call is accepted, so what came of the last one is over. `work`: what it has begun.
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

// Inside a group the call is remembered, else it runs, which completes `args`: a copy of them is
// not for nothing in a short call.
Error submit(CallTarget& target, CollectiveArgs& args, void* stream);
Error submit(CallTarget& target, Message message, void* stream);
// The compressor is claimed; it is let go when the call has ended, or is refused.
Error submit(CallTarget& target, const std::shared_ptr<Compressor>& compressor,
             const CompressedTensor& tensor, void* stream);
// A refused call inside a group is the group's result too.
Error conclude(Error error);

}  // namespace pith
