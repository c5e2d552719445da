// Argument checks of the C API. The error names the function, the argument, its value and what was
// expected.
#pragma once

#include <limits>
#include <string>

#include "api/comm_handle.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "pith/pith.h"

namespace pith::api {

// Checks that every call makes are inline, as they are a good part of a short one. What they find
// wrong is told by these.
Error null_pointer(const char* function, const char* argument);
Error unusable_handle(const char* function, pithComm_t comm);
Error unknown_type(const char* function, pithDataType_t type);
Error undefined_op(const char* function, pithRedOp_t op, pithDataType_t type);
Error too_many(const char* function, const char* argument, size_t count, size_t most);

// The error for an argument that is not allowed.
Error refused(const char* function, const std::string& what);
// Puts the name of the API function before the message of an error from a layer below.
Error told_by(const char* function, const Error& error);
inline Error check_pointer(const char* function, const char* argument, const void* pointer) {
  if (pointer) [[likely]]
    return {};
  return null_pointer(function, argument);
}
// The error for the use of a destroyed communicator.
Error destroyed_before(const char* function);
// Neither NULL nor destroyed, and made by this process.
inline Error check_handle(const char* function, pithComm_t comm) {
  if (comm && !comm->destroyed.load(std::memory_order_relaxed) &&
      comm->process == fork_generation()) [[likely]]
    return {};
  return unusable_handle(function, comm);
}
// As check_handle; also that creation has succeeded and comm is not finalized. It may be busy.
Error check_made(const char* function, pithComm_t comm);
// As check_handle; also that creation has succeeded and comm is not busy. It may be finalized.
Error check_queried(const char* function, pithComm_t comm);
// As check_queried and check_made; check_communicator() for most is less.
Error check_whole_communicator(const char* function, pithComm_t comm);
// As check_queried; also that comm is not finalized, so that it takes calls.
inline Error check_communicator(const char* function, pithComm_t comm) {
  if (Error error = check_handle(function, comm)) return error;
  if (comm->blocking && comm->made() && !comm->finalized) [[likely]]
    return {};
  return check_whole_communicator(function, comm);
}
// That this thread's open group holds no calls of comm: to end the handle would drop them silently
// if the group never ends. Calls of a revoked communicator are allowed, since they can only fail.
Error check_not_in_group(const char* function, const pithComm& comm);
Error still_in_group(const char* function);
// "pithMax (2)", or the number alone if it is no enumerator.
std::string describe(pithRedOp_t op);
std::string describe(pithDataType_t type);
inline Error check_type(const char* function, pithDataType_t type) {
  if (type >= 0 && type < dtype_count) [[likely]]
    return {};
  return unknown_type(function, type);
}
Error check_made_op(const char* function, pithRedOp_t op, pithComm_t comm, pithDataType_t type);
// A built-in operation that the type has, or one that was made for this communicator and type.
// Precondition: check_type has accepted `type`.
inline Error check_op(const char* function, pithRedOp_t op, pithComm_t comm, pithDataType_t type) {
  if (op < 0 || op >= op_count) return check_made_op(function, op, comm, type);
  if (is_defined(static_cast<Op>(op), static_cast<DType>(type))) [[likely]]
    return {};
  return undefined_op(function, op, type);
}
// Not pithAvg. Precondition: check_op has accepted `op`.
Error check_scan_op(const char* function, pithRedOp_t op);
// pithSum or pithAvg.
Error check_sum(const char* function, pithRedOp_t op);
// `argument`: "root" or "peer".
Error check_rank(const char* function, const char* argument, int rank, int ranks);
// Not NULL unless count is 0.
inline Error check_memory(const char* function, const char* argument, const void* memory,
                          size_t count) {
  return count == 0 ? Error() : check_pointer(function, argument, memory);
}
Error check_stream(const char* function, pithStream_t stream);
// As check_stream. In addition, replaces NULL by the legacy default stream if any buffer is device
// memory, or if all buffers are NULL and the thread has a CUDA context, so that such a call, as of
// empty tensors, does not block the thread.
Error resolve_stream(const char* function, pithStream_t& stream,
                     std::initializer_list<const void*> buffers);
// That `copies` times `count` elements of the type fit into the address space.
inline Error check_count(const char* function, const char* argument, size_t count,
                         pithDataType_t type, int copies) {
  constexpr auto limit = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  const std::size_t unit = size_of(static_cast<DType>(type)) * static_cast<std::size_t>(copies);
  std::size_t bytes = 0;
  if (!__builtin_mul_overflow(count, unit, &bytes) && bytes <= limit) [[likely]]
    return {};
  return too_many(function, argument, count, limit / unit);
}

// The error of the first check that failed.
inline Error first_of(std::initializer_list<Error> checks) {
  for (const Error& error : checks) {
    if (error) return error;
  }
  return {};
}

}  // namespace pith::api
