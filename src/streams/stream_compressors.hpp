// Where the compressors of calls on streams have their accumulators: on the device or the host, as
// the vectors that they compress. By the thread that issues the calls.
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

  // The arguments have been placed. What place() would refuse.
  Error check(const CompressedArgs& args);
  // Accumulators go to where the vectors are. A refused call changes nothing, of none of its
  // compressors. Between calls, for all compressors are claimed.
  Error place(const CompressedArgs& args);
  // Places them, and they are the communicator's: the call is refused for nothing any more.
  Error take(const CompressedArgs& args, const HeldCompressors& held);

 private:
  StreamDevice& device_;
  BoundCompressors& bound_;
  DeviceVectors* vectors_ = nullptr;  // from the first compressed call on device memory on
};

}  // namespace pith
