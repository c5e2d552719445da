// Places the accumulators of calls on streams on the device or the host, where the vectors to
// compress are. Used by the thread that issues the calls.
#pragma once

#include "collectives/call_args.hpp"
#include "comm/bound_compressors.hpp"
#include "compress/held_compressors.hpp"
#include "streams/stream_device.hpp"

namespace pith {

class StreamCompressors {
 public:
  StreamCompressors(StreamDevice& device, BoundCompressors& bound)
      : device_(device), bound_(bound) {}

  // The error that place() would return. Precondition: the arguments have been placed.
  Error check(const CompressedArgs& args);
  // Moves the accumulators to the memory of the vectors. A refused call changes no compressor. It
  // runs between calls, because all compressors are claimed.
  Error place(const CompressedArgs& args);
  // Places the compressors and binds them to the communicator. After it the call cannot be refused.
  Error take(const CompressedArgs& args, const HeldCompressors& held);

 private:
  StreamDevice& device_;
  BoundCompressors& bound_;
  DeviceVectors* vectors_ = nullptr;  // set by the first compressed call on device memory
};

}  // namespace pith
