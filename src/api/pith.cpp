// pith.h implemented: groups and memory. The functions of a communicator's life are in
// communicator_*.cpp, the calls on them in collectives.cpp.
#include "pith/pith.h"

#include <fmt/format.h>

#include "api/check.hpp"
#include "api/last_error.hpp"
#include "comm/group.hpp"
#include "core/heap.hpp"
#include "core/waiting.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// Freed requests stay in a pool, so that the use of one is detected.
Error check_unfinished(const char* function, const pithRequest& request) {
  if (request.process != fork_generation()) {
    return refused(
        function, "request was begun before this process was forked, expected one of this process");
  }
  if (request.group) return {};
  return {Code::invalid_argument,
          fmt::format("{}: request has ended before, expected one of pithGroupEndAsync", function)};
}

// Returns the request to the pool. Precondition: its calls have ended.
Error end(pithRequest_t request) {
  const Request ended(request);
  return ended->group->error();
}

// What pithSetInterrupt was given by this thread.
struct Asked {
  int (*check)(void* context) = nullptr;
  void* context = nullptr;
};
constinit thread_local Asked asked;

// The thread may be in the middle of a group's calls, and `check` may make groups of its own.
int ask_apart(void*) {
  Group& group = Group::of_this_thread();
  Group waiting = std::exchange(group, Group());
  const int ends = asked.check(asked.context);
  group = std::move(waiting);
  return ends;
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

pithResult_t pithSetInterrupt(int (*check)(void* context), void* context) {
  return guarded([&] {
    asked = {check, context};
    Interrupt::of_this_thread().check = check ? &ask_apart : nullptr;
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
    const Expected<bool> outermost = group.end("pithGroupEnd");
    if (!outermost) return outermost.error();
    return *outermost ? group.run() : Error();
  });
}

pithResult_t pithGroupEndAsync(pithRequest_t* request) {
  return guarded([&] {
    constexpr const char* function = "pithGroupEndAsync";
    if (Error error = check_pointer(function, "request", request)) return error;
    Group& group = Group::of_this_thread();
    const Expected<bool> outermost = group.end(function);
    if (!outermost) return outermost.error();
    if (!*outermost) {
      group.start();
      return Error(
          Code::invalid_usage,
          fmt::format("{}: the group is inside another one, expected the outermost", function));
    }
    Expected<Request> started = group.run_in_background();
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
    if (Error error = check_unfinished("pithTest", *request)) return error;
    *done = request->group->done();
    if (!*done) return Error();
    return end(request);
  });
}

pithResult_t pithWait(pithRequest_t request) {
  return guarded([&] {
    if (Error error = check_pointer("pithWait", "request", request)) return error;
    if (Error error = check_unfinished("pithWait", *request)) return error;
    if (!request->group->done()) {
      drive_engines(request->engines, [&] { return request->group->done(); });
    }
    return end(request);
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
    return told_by("pithMemFree", Heap::process().free(pointer));
  });
}
