// Scratch of calls on streams. It is taken when a call is enqueued, outside of any call, so that no
// call asks the driver for memory while streams wait for it.
//
// A stream can be inside one call only, so there is room for the largest call on each stream that
// was used. Used by the thread that issues the calls.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/call_args.hpp"
#include "streams/stream_device.hpp"

namespace pith {

class StreamScratch {
 public:
  explicit StreamScratch(StreamDevice& device) : device_(device) {}

  // Reserves room for a first call like this one; only a part if there are very many ranks.
  Error prepare(const CallArgs& args);
  Error reserve(const CallArgs& args, cuda::CUstream stream);

 private:
  void warn_of_priority(cuda::CUstream stream) const;

  StreamDevice& device_;
  std::vector<const void*> streams_;  // that calls have used
  std::size_t device_need_ = 0;
  std::size_t pinned_need_ = 0;
};

}  // namespace pith
