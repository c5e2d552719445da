// Checks for which a call on a stream is refused, before anything is taken for it: its stream is of
// another context, or the call cannot reach its memory.
#pragma once

#include "collectives/call_args.hpp"
#include "comm/call_runner.hpp"
#include "streams/stream_compressors.hpp"
#include "streams/stream_device.hpp"

namespace pith {

class StreamChecks {
 public:
  StreamChecks(StreamDevice& device, const CallRunner& runner, StreamCompressors& compressors)
      : device_(device), runner_(runner), compressors_(compressors) {}

  // Precondition: the device's context is current.
  Error check_context(const CallArgs& args, cuda::CUstream stream) const;
  // By kind of call. Precondition: the arguments have been placed.
  Error check_placed(const CollectiveArgs& args) const;
  Error check_placed(const CompressedArgs& args) const;
  Error check_placed(const PairArgs& args) const;

 private:
  Error check_reached(const CompressedTensor& tensor) const;
  Error check_reached(const char* argument, const void* memory) const;

  StreamDevice& device_;
  const CallRunner& runner_;
  StreamCompressors& compressors_;
};

}  // namespace pith
