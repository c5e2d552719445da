#include "api/submission.hpp"

#include <fmt/format.h>

#include "streams/stream_memory.hpp"

namespace pith::api {

namespace {

// Precondition: check_op has accepted `op`.
Error set_op(const char* function, pithRedOp_t op, pithComm_t comm, pithStream_t stream,
             CollectiveArgs& args) {
  if (op < op_count) {
    args.op = static_cast<Op>(op);
    return {};
  }
  args.factor = comm->ops.find(op)->factor;
  const std::byte* scalar = args.factor.where;
  if (stream || !scalar) return {};
  const Expected<bool> on_device = is_device_memory(scalar);
  if (!on_device) return told_by(function, on_device.error());
  if (!*on_device) return {};
  return {Code::invalid_argument,
          fmt::format("{}: op has its scalar in device memory ({}), expected a stream", function,
                      static_cast<const void*>(scalar))};
}

}  // namespace

Error submit_reduction(const char* function, pithComm_t comm, CollectiveArgs& args, pithRedOp_t op,
                       pithStream_t stream, const GivenBuffers& given) {
  if (Error error = resolve_stream(function, stream, {given.send, given.recv})) return error;
  if (Error error = set_op(function, op, comm, stream, args)) return error;
  return submit(*comm, args, stream);
}

Error submit_move(const char* function, pithComm_t comm, CollectiveArgs& args, pithStream_t stream,
                  const GivenBuffers& given) {
  if (Error error = resolve_stream(function, stream, {given.send, given.recv})) return error;
  return submit(*comm, args, stream);
}

}  // namespace pith::api
