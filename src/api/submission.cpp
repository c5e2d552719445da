#include "api/submission.hpp"

#include <fmt/format.h>

#include "streams/stream_memory.hpp"

namespace pith::api {

namespace {

Error find_stream(const char* function, pithComm_t comm, pithStream_t& stream,
                  const GivenBuffers& given) {
  if (!stream) {
    const std::uint64_t tick = last_tick_ns();
    if (comm->recent_buffers.has(given.send, given.recv, tick)) return {};
    if (!look_for_device_memory()) {
      comm->recent_buffers.add(given.send, given.recv, tick);
      return {};
    }
  }
  return resolve_stream(function, stream, {given.send, given.recv});
}

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
  if (Error error = find_stream(function, comm, stream, given)) return error;
  if (Error error = set_op(function, op, comm, stream, args)) return error;
  return submit(*comm, args, stream);
}

Error submit_move(const char* function, pithComm_t comm, CollectiveArgs& args, pithStream_t stream,
                  const GivenBuffers& given) {
  if (Error error = find_stream(function, comm, stream, given)) return error;
  return submit(*comm, args, stream);
}

}  // namespace pith::api
