// Functions for layers on top of pith.h (libnccl.so.2), mainly about the creation of communicators.
#pragma once

#include <functional>

#include "core/error.hpp"
#include "pith/pith.h"

namespace pith::api {

// The last step of the creation of a communicator, before the caller gets it. Collective over its
// ranks. Runs on the thread that makes the communicator; its error becomes that of the creation.
using Completion = std::function<Error(pithComm&)>;

// From now on InitRank, Split, Shrink and Grow call `begin`, on the thread of the caller, to get
// the completion of the new communicator. An empty completion does nothing.
void complete_communicators_by(Completion (*begin)());

// pithCommInitRankConfig with another function name for messages. `function` must be a literal.
Error init_rank(const char* function, pithComm_t* comm, int nranks, const pithUniqueId& id,
                int rank, const pithConfig_t* config);

// pithCommGrow, likewise.
Error grow(const char* function, pithComm_t comm, int nranks, const pithUniqueId* id, int rank,
           pithComm_t* newcomm, const pithConfig_t* config);

// What pithCommGetAsyncError reports, with its message. Precondition: check_handle has accepted
// comm.
Error async_error(pithComm_t comm);

// pithCommSplit of a communicator that may be revoked. Such a communicator allows no collective
// operation but shrink, so this shrinks first and then splits the result. Collective over the
// living ranks.
Error split_survivors(pithComm_t comm, int color, int key, pithComm_t* newcomm,
                      const pithConfig_t* config);

// pithAlltoAll, except that recv may equal send; the contents of recv are then unspecified.
pithResult_t alltoall_anywhere(const void* send, void* recv, size_t count, pithDataType_t type,
                               pithComm_t comm, pithStream_t stream);

}  // namespace pith::api
