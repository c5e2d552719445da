#include "api/check.hpp"

#include <fmt/format.h>

#include "streams/stream_memory.hpp"

namespace pith::api {

namespace {

std::string with_name(std::span<const std::string_view> names, int number) {
  const bool known = number >= 0 && static_cast<std::size_t>(number) < names.size();
  return known ? fmt::format("{} ({})", names[static_cast<std::size_t>(number)], number)
               : std::to_string(number);
}

bool is_busy(const pithComm& comm) {
  const std::lock_guard lock(comm.guard);
  return comm.background && !comm.background.done();
}

Error check_exists(const char* function, pithComm_t comm) {
  if (Error error = check_handle(function, comm)) return error;
  if (comm->made()) return {};
  return refused(function, comm->being_made ? "comm is not ready: it is still being made"
                                            : "comm is not ready: its creation failed");
}

Error check_takes_calls(const char* function, const pithComm& comm) {
  if (!comm.finalized) return {};
  return refused(function, "comm is finalized, expected one that still takes calls");
}

}  // namespace

Error refused(const char* function, const std::string& what) {
  return {Code::invalid_argument, fmt::format("{}: {}", function, what)};
}

Error told_by(const char* function, const Error& error) {
  if (!error) return {};
  return {error.code(), fmt::format("{}: {}", function, error.message()), error.rank()};
}

Error null_pointer(const char* function, const char* argument) {
  return refused(function, fmt::format("{} is NULL, expected a pointer", argument));
}

Error destroyed_before(const char* function) {
  return refused(function, "comm was destroyed, expected a communicator");
}

Error unusable_handle(const char* function, pithComm_t comm) {
  if (!comm) return refused(function, "comm is NULL, expected a communicator");
  if (comm->destroyed.load(std::memory_order_relaxed)) return destroyed_before(function);
  return refused(
      function,
      "comm was made before this process was forked, or is no communicator at all; expected "
      "one that was made here");
}

Error check_made(const char* function, pithComm_t comm) {
  if (Error error = check_exists(function, comm)) return error;
  return check_takes_calls(function, *comm);
}

Error check_queried(const char* function, pithComm_t comm) {
  if (Error error = check_handle(function, comm)) return error;
  if (!comm->blocking && is_busy(*comm)) {
    return refused(
        function,
        "comm is busy: its last call with blocking = 0 runs until pithCommGetAsyncError says "
        "otherwise");
  }
  return check_exists(function, comm);
}

Error check_whole_communicator(const char* function, pithComm_t comm) {
  if (Error error = check_queried(function, comm)) return error;
  return check_takes_calls(function, *comm);
}

Error still_in_group(const char* function) {
  return {Code::invalid_usage,
          fmt::format("{}: comm has calls in the group that this thread has open, expected "
                      "pithGroupEnd first, which runs them",
                      function)};
}

Error check_not_in_group(const char* function, const pithComm& comm) {
  const Group& group = Group::of_this_thread();
  const Communicator* const made = group.open() ? comm.made() : nullptr;
  return made && group.has(*made) && !made->is_revoked() ? still_in_group(function) : Error();
}

std::string describe(pithRedOp_t op) {
  constexpr std::string_view names[op_count] = {"pithSum",  "pithProd", "pithMax", "pithMin",
                                                "pithAvg",  "pithBand", "pithBor", "pithBxor",
                                                "pithLand", "pithLor",  "pithLxor"};
  return with_name(names, op);
}

std::string describe(pithDataType_t type) {
  constexpr std::string_view names[dtype_count] = {
      "pithInt8",       "pithUint8",      "pithInt32",     "pithUint32",    "pithInt64",
      "pithUint64",     "pithFloat16",    "pithFloat32",   "pithFloat64",   "pithBfloat16",
      "pithFloat8e4m3", "pithFloat8e5m2", "pithComplex64", "pithComplex128"};
  return with_name(names, type);
}

Error unknown_type(const char* function, pithDataType_t type) {
  return refused(function, fmt::format("type is {}, expected 0 to {}", static_cast<int>(type),
                                       dtype_count - 1));
}

Error undefined_op(const char* function, pithRedOp_t op, pithDataType_t type) {
  return refused(
      function,
      fmt::format("op is {} and type is {}, expected {} for this op", describe(op), describe(type),
                  op < pithBand ? "a type that is not complex" : "an integer type"));
}

Error check_made_op(const char* function, pithRedOp_t op, pithComm_t comm, pithDataType_t type) {
  const ReductionOps::PreMulSum* made = comm->ops.find(op);
  if (!made) {
    return refused(function,
                   fmt::format("op is {}, expected 0 to {} or what pithRedOpCreatePreMulSum "
                               "made for this communicator",
                               static_cast<int>(op), op_count - 1));
  }
  if (made->type == static_cast<DType>(type)) return {};
  return refused(
      function,
      fmt::format("op {} was made for type {}, expected an operation for type {}",
                  static_cast<int>(op), name_of(made->type), name_of(static_cast<DType>(type))));
}

Error check_scan_op(const char* function, pithRedOp_t op) {
  if (op != pithAvg) return {};
  return refused(function, fmt::format("op is {}, expected one that does not divide: the number of "
                                       "operands is another one on each rank",
                                       describe(op)));
}

Error check_sum(const char* function, pithRedOp_t op) {
  if (op == pithSum || op == pithAvg) return {};
  return refused(function,
                 fmt::format("op is {}, expected pithSum (0) or pithAvg (4)", describe(op)));
}

Error check_rank(const char* function, const char* argument, int rank, int ranks) {
  if (rank >= 0 && rank < ranks) return {};
  return refused(function, fmt::format("{} is {}, expected 0 to {}", argument, rank, ranks - 1));
}

Error check_stream(const char* function, pithStream_t stream) {
  if (!stream) return {};
  const Error error = check_streams();
  if (!error) return {};
  return refused(function, fmt::format("stream is {}, expected NULL for host memory: {}", stream,
                                       error.message()));
}

Error resolve_stream(const char* function, pithStream_t& stream,
                     std::initializer_list<const void*> buffers) {
  if (stream) return check_stream(function, stream);
  if (!look_for_device_memory()) [[likely]]
    return {};
  bool any = false;
  for (const void* memory : buffers) {
    if (!memory) continue;
    any = true;
    const Expected<bool> on_device = is_device_memory(memory);
    if (!on_device) return told_by(function, on_device.error());
    if (!*on_device) continue;
    stream = legacy_stream();
    return check_stream(function, stream);
  }
  if (!any && current_context()) stream = legacy_stream();
  return {};
}

Error too_many(const char* function, const char* argument, size_t count, size_t most) {
  return refused(function, fmt::format("{} is {}, expected at most {}", argument, count, most));
}

}  // namespace pith::api
