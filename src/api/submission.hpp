// What the functions that move data have in common: checks, then the communicator.
#pragma once

#include "api/calling.hpp"
#include "api/check.hpp"
#include "api/last_error.hpp"

namespace pith::api {

// Runs the function's body, which returns an Error. In a group an error also fails the group.
template <class Body>
pithResult_t concluded(pithComm_t comm, Body body) noexcept {
  return guarded(comm, [&] {
    const Calling calling(comm);
    return conclude(without_throwing(body));
  });
}

// That comm takes calls, of this type.
inline Error check_call(const char* function, pithComm_t comm, pithDataType_t type) {
  if (Error error = check_communicator(function, comm)) return error;
  return check_type(function, type);
}

// The caller's pointers, also where the call has no elements and does not look at them.
struct GivenBuffers {
  const void* send;
  const void* recv;
};
// Both find out whose memory the buffers are if the stream is NULL. Precondition of the first:
// check_op has accepted `op`. `args` are completed in place.
Error submit_reduction(const char* function, pithComm_t comm, CollectiveArgs& args, pithRedOp_t op,
                       pithStream_t stream, const GivenBuffers& given);
Error submit_move(const char* function, pithComm_t comm, CollectiveArgs& args, pithStream_t stream,
                  const GivenBuffers& given);
inline Error submit_reduction(const char* function, pithComm_t comm, CollectiveArgs&& args,
                              pithRedOp_t op, pithStream_t stream) {
  const GivenBuffers given{args.send.data, args.recv.data};
  return submit_reduction(function, comm, args, op, stream, given);
}
inline Error submit_move(const char* function, pithComm_t comm, CollectiveArgs&& args,
                         pithStream_t stream) {
  const GivenBuffers given{args.send.data, args.recv.data};
  return submit_move(function, comm, args, stream, given);
}

}  // namespace pith::api
