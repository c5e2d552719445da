// Argument checks of the C API. Each names the function, the argument, its value and what was
// expected.
#pragma once

#include <string>

#include "api/comm_handle.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "pith/pith.h"

namespace pith::api {

// The same error as this function's, where whoever wrote it did not know who had asked.
Error told_by(const char* function, const Error& error);
Error check_pointer(const char* function, const char* argument, const void* pointer);
// What the use of a destroyed communicator is answered with.
Error destroyed_before(const char* function);
Error check_handle(const char* function, pithComm_t comm);
// And that it is made, and not finalized; it may be busy.
Error check_made(const char* function, pithComm_t comm);
// That it can be asked for what it is, also when it is finalized; not while it is busy.
Error check_queried(const char* function, pithComm_t comm);
// And that it takes calls now.
Error check_communicator(const char* function, pithComm_t comm);
// That no call of it waits in the group that this thread has open, which a handle's end would be
// the end of without a word, where the group never ends. Those of a revoked one can only fail.
Error check_not_in_group(const char* function, const pithComm& comm);
Error still_in_group(const char* function);
// "pithMax (2)", or the number alone where no enumerator has it.
std::string describe(pithRedOp_t op);
std::string describe(pithDataType_t type);
Error check_type(const char* function, pithDataType_t type);
// One of the five, or a handle of this communicator made for this type.
Error check_op(const char* function, pithRedOp_t op, pithComm_t comm, pithDataType_t type);
// `argument` names a rank: root or peer.
Error check_rank(const char* function, const char* argument, int rank, int ranks);
// Memory of count elements.
Error check_memory(const char* function, const char* argument, const void* memory, size_t count);
Error check_stream(const char* function, pithStream_t stream);
// And makes NULL the legacy default stream where some of the memory is a device's. A call without
// memory, as of empty tensors, does not hold up a thread that uses CUDA either.
Error resolve_stream(const char* function, pithStream_t& stream,
                     std::initializer_list<const void*> buffers);
// count elements of the type, `copies` times over, must be a size that memory can have.
Error check_count(const char* function, const char* argument, size_t count, pithDataType_t type,
                  int copies);

// The first of several checks that failed.
inline Error first_of(std::initializer_list<Error> checks) {
  for (const Error& error : checks) {
    if (error) return error;
  }
  return {};
}

}  // namespace pith::api
