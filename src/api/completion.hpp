// What layers on top of pith.h need beyond its functions: of communicators that come to be, above
// all.
#pragma once

#include <functional>

#include "core/error.hpp"
#include "pith/pith.h"

namespace pith::api {

// What has to be done for a new communicator before anybody sees it; all of its ranks do it at
// once. An error of it is the creation's. Runs on the thread that makes the communicator.
using Completion = std::function<Error(pithComm&)>;

// From now on `begin` is asked for one, by the thread that wants a communicator of InitRank, Split
// or Shrink. One that is empty does nothing.
void complete_communicators_by(Completion (*begin)());

// pithCommInitRankConfig for a function of another name: a literal.
Error init_rank(const char* function, pithComm_t* comm, int nranks, const pithUniqueId& id,
                int rank, const pithConfig_t* config);

// What pithCommGetAsyncError tells, in words. Precondition: check_handle has accepted it.
Error async_error(pithComm_t comm);

// pithCommSplit of a communicator that may be revoked, which takes no call that all ranks share
// but shrink: by way of one. Collective over the ranks that live.
Error split_survivors(pithComm_t comm, int color, int key, pithComm_t* newcomm,
                      const pithConfig_t* config);

// pithAlltoAll, but that recv may be send: nobody may count on what is there afterwards.
pithResult_t alltoall_anywhere(const void* send, void* recv, size_t count, pithDataType_t type,
                               pithComm_t comm, pithStream_t stream);

}  // namespace pith::api
