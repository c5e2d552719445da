#include "streams/stream_checks.hpp"

#include <fmt/format.h>

#include "collectives/compressed_check.hpp"
#include "streams/stream_memory.hpp"

namespace pith {

Error StreamChecks::check_context(const CallArgs& args, cuda::CUstream stream) const {
  bool ours = false;
  if (cuda::is_default(stream)) {
    const Expected<cuda::Device*> device = device_of(args, stream);
    if (!device) return device.error();
    ours = *device == &device_.cuda();
  } else {
    ours = device_.cuda().owns(stream);
  }
  if (ours) return {};
  return {Code::invalid_usage,
          fmt::format("stream {} belongs to another context than this communicator's first one",
                      static_cast<const void*>(stream))};
}

Error StreamChecks::check_placed(const CompressedArgs& args) const {
  for (const CompressedTensor& tensor : args.tensors) {
    if (Error error = check_reached(tensor)) return error;
  }
  if (Error error = check_compressed_call(device_.context(), args.tensors)) return error;
  return compressors_.check(args);
}

Error StreamChecks::check_placed(const CollectiveArgs& args) const {
  if (args.count == 0 || runner_.is_alone(args)) return {};
  if (Error error = check_reached("send", args.send.data)) return error;
  if (Error error = check_reached("recv", args.recv.data)) return error;
  return check_reached("the scalar of op", args.factor.where);
}

Error StreamChecks::check_placed(const PairArgs& args) const {
  for (const Message& message : args.messages) {
    if (message.data.size == 0) continue;
    const char* const argument = message.sends ? "send" : "recv";
    if (Error error = check_reached(argument, message.data.data)) return error;
  }
  return {};
}

Error StreamChecks::check_reached(const CompressedTensor& tensor) const {
  const SparseOutput& pairs = tensor.sparse;
  if (Error error = check_reached("n", pairs.count)) return error;
  if (tensor.count == 0) return {};
  if (Error error = check_reached("send", tensor.send)) return error;
  if (Error error = check_reached("recv", tensor.recv)) return error;
  if (pairs.capacity == 0) return {};
  if (Error error = check_reached("indices", pairs.indices)) return error;
  return check_reached("values", pairs.values);
}

// The driver's copies reach any memory; a worker copies by loads and stores on this device.
Error StreamChecks::check_reached(const char* argument, const void* memory) const {
  if (!memory || !device_.compute().workers()) return {};
  const Expected<cuda::Where> where = cuda::where_is(device_.driver(), memory);
  if (!where || *where != cuda::Where::device) return where.error();
  const Expected<cuda::Device*> device = cuda::Device::of_memory(memory);
  if (!device || *device == &device_.cuda()) return device.error();
  return {Code::invalid_usage,
          fmt::format("{} is {}, another device's memory than the stream's, expected the same "
                      "one's where workers run the steps of calls (PITH_CUDA_STEPS)",
                      argument, memory)};
}

}  // namespace pith
