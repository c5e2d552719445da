// pith.h implemented: communicators, groups and memory. Argument checks, no logic of its own;
// the calls on communicators are in collectives.cpp.
#include "pith/pith.h"

#include <fmt/format.h>

#include "api/check.hpp"
#include "api/last_error.hpp"
#include "comm/rendezvous.hpp"
#include "core/heap.hpp"
#include "core/log.hpp"

using namespace pith;
using namespace pith::api;

namespace {

Error init_rank(pithComm_t* comm, int nranks, const pithUniqueId& id, int rank) {
  constexpr const char* function = "pithCommInitRank";
  if (Error error = check_pointer(function, "comm", comm)) return error;
  if (nranks < 1) {
    return {Code::invalid_argument,
            fmt::format("{}: nranks is {}, expected at least 1", function, nranks)};
  }
  if (rank < 0 || rank >= nranks) {
    return {Code::invalid_argument,
            fmt::format("{}: rank is {}, expected 0 to {}", function, rank, nranks - 1)};
  }
  const Expected<UniqueId> loaded = UniqueId::load(id.internal);
  if (!loaded) return loaded.error();
  const auto create = [comm, nranks, rank, unique = *loaded] {
    Expected<std::unique_ptr<Communicator>> made = Communicator::init_rank(unique, rank, nranks);
    if (!made) return made.error();
    *comm = new pithComm{std::move(*made)};
    return Error();
  };
  Group& group = Group::of_this_thread();
  if (!group.open()) return create();
  group.add(create);
  return {};
}

// The memory behind a handle goes with it; calls in flight end first.
Error destroy(pithComm_t comm) {
  if (comm && comm->communicator) comm->communicator->drain();
  delete comm;
  return {};
}

}  // namespace

pithResult_t pithGetVersion(int* version) {
  return guarded([&] {
    if (Error error = check_pointer("pithGetVersion", "version", version)) return error;
    *version = PITH_VERSION_CODE;
    return Error();
  });
}

const char* pithGetErrorString(pithResult_t result) {
  switch (result) {
    case pithSuccess:
      return "no error";
    case pithUnhandledCudaError:
      return "unhandled cuda error";
    case pithSystemError:
      return "unhandled system error";
    case pithInternalError:
      return "internal error";
    case pithInvalidArgument:
      return "invalid argument";
    case pithInvalidUsage:
      return "invalid usage";
    case pithRemoteError:
      return "remote process exited or there was a network error";
    case pithInProgress:
      return "operation in progress";
  }
  return "unknown result code";
}

const char* pithGetLastError(pithComm_t comm) {
  if (!comm) return last_error();
  // The communicator keeps its error, so the text outlives this copy.
  return comm->communicator ? comm->communicator->error().message() : "";
}

pithResult_t pithGetUniqueId(pithUniqueId* id) {
  return guarded([&] {
    if (Error error = check_pointer("pithGetUniqueId", "id", id)) return error;
    const Expected<Settings> settings = settings_from_environment();
    if (!settings) return settings.error();
    const Expected<UniqueId> made = Rendezvous::open(settings->host, settings->init_timeout);
    if (!made) return made.error();
    made->store(id->internal);
    return Error();
  });
}

pithResult_t pithCommInitRank(pithComm_t* comm, int nranks, pithUniqueId id, int rank) {
  return guarded([&] { return init_rank(comm, nranks, id, rank); });
}

pithResult_t pithCommInitAll(pithComm_t* comms, int n, const int* devices) {
  return guarded([&] {
    constexpr const char* function = "pithCommInitAll";
    if (Error error = check_pointer(function, "comms", comms)) return error;
    if (n < 1) {
      return Error(Code::invalid_argument,
                   fmt::format("{}: n is {}, expected at least 1", function, n));
    }
    if (devices) {
      return Error(Code::invalid_argument,
                   fmt::format("{}: devices is {}, expected NULL: this build has host ranks only",
                               function, static_cast<const void*>(devices)));
    }
    Expected<std::vector<std::unique_ptr<Communicator>>> made = Communicator::init_all(n);
    if (!made) return made.error();
    for (int r = 0; r < n; ++r) {
      comms[r] = new pithComm{std::move((*made)[static_cast<std::size_t>(r)])};
    }
    return Error();
  });
}

pithResult_t pithCommFinalize(pithComm_t comm) {
  return guarded([&] {
    if (!comm) return Error();
    if (Error error = check_communicator("pithCommFinalize", comm)) return error;
    comm->communicator->drain();
    comm->finalized = true;
    return Error();
  });
}

pithResult_t pithCommDestroy(pithComm_t comm) {
  return guarded([&] { return destroy(comm); });
}

pithResult_t pithCommAbort(pithComm_t comm) {
  return guarded([&] {
    if (comm && comm->communicator) comm->communicator->abort();
    return destroy(comm);
  });
}

pithResult_t pithCommCount(pithComm_t comm, int* count) {
  return guarded([&] {
    if (Error error = first_of({check_communicator("pithCommCount", comm),
                                check_pointer("pithCommCount", "count", count)})) {
      return error;
    }
    *count = comm->communicator->size();
    return Error();
  });
}

pithResult_t pithCommUserRank(pithComm_t comm, int* rank) {
  return guarded([&] {
    if (Error error = first_of({check_communicator("pithCommUserRank", comm),
                                check_pointer("pithCommUserRank", "rank", rank)})) {
      return error;
    }
    *rank = comm->communicator->rank();
    return Error();
  });
}

pithResult_t pithGroupStart(void) {
  return guarded([&] {
    Group::of_this_thread().start();
    return Error();
  });
}

pithResult_t pithGroupEnd(void) {
  return guarded([&] {
    Group& group = Group::of_this_thread();
    const Expected<bool> outermost = group.end();
    if (!outermost) return outermost.error();
    return *outermost ? group.run() : Error();
  });
}

pithResult_t pithGroupEndAsync(pithRequest_t* request) {
  return guarded([&] {
    Error error = check_pointer("pithGroupEndAsync", "request", request);
    if (error) return error;
    Group& group = Group::of_this_thread();
    const Expected<bool> outermost = group.end();
    if (!outermost) return outermost.error();
    if (!*outermost) {
      group.start();
      return Error(Code::invalid_usage,
                   "pithGroupEndAsync: the group is inside another one, expected the outermost");
    }
    Expected<std::unique_ptr<pithRequest>> started = group.run_in_background();
    if (!started) return started.error();
    *request = started->release();
    return Error();
  });
}

pithResult_t pithTest(pithRequest_t request, int* done) {
  return guarded([&] {
    if (Error error = first_of({check_pointer("pithTest", "request", request),
                                check_pointer("pithTest", "done", done)})) {
      return error;
    }
    *done = request->group->done();
    if (!*done) return Error();
    Error error = request->group->error();
    delete request;
    return error;
  });
}

pithResult_t pithWait(pithRequest_t request) {
  return guarded([&] {
    if (Error error = check_pointer("pithWait", "request", request)) return error;
    if (!request->group->done()) {
      drive_engines(request->engines, [&] { return request->group->done(); });
    }
    Error error = request->group->error();
    delete request;
    return error;
  });
}

pithResult_t pithMemAlloc(void** pointer, size_t bytes) {
  return guarded([&] {
    if (Error error = check_pointer("pithMemAlloc", "pointer", pointer)) return error;
    void* memory = Heap::process().allocate(bytes);
    if (!memory) {
      return Error(Code::system, fmt::format("pithMemAlloc: no memory for {} bytes", bytes));
    }
    *pointer = memory;
    return Error();
  });
}

pithResult_t pithMemFree(void* pointer) {
  return guarded([&] {
    if (!pointer) return Error();
    return Heap::process().free(pointer);
  });
}
