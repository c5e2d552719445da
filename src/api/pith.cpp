// pith.h implemented, the calls on communicators: argument checks, then the communicator. No logic
// of its own.
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

Bytes bytes_at(const void* memory) {
  // Algorithms never write to what they send; one span type keeps them simple.
  return {const_cast<std::byte*>(static_cast<const std::byte*>(memory)), 0};
}

// blocking = 0: pithCommGetAsyncError tells the end.
Error begin(pithComm_t comm, const CollectiveArgs& args) {
  Group alone;
  alone.add(comm->communicator, args, nullptr);
  Expected<std::unique_ptr<pithRequest>> calls = alone.run_in_background();
  if (!calls) return calls.error();
  comm->background = std::make_unique<Background>(std::move(*calls));
  return {Code::in_progress, "the call has begun"};
}

// Inside a group the call is remembered, else it runs.
Error submit(pithComm_t comm, const CollectiveArgs& args, pithStream_t stream) {
  Group& group = Group::of_this_thread();
  if (group.open()) {
    group.add(comm->communicator, args, stream);
    return {};
  }
  if (!comm->blocking && !stream) return begin(comm, args);
  // An abort by another thread may have freed `comm` when this returns.
  return stream ? comm->communicator->enqueue_on_stream(args, stream)
                : comm->communicator->run(args);
}

// A refused call inside a group is the group's result too.
Error conclude(Error error) {
  if (error && Group::of_this_thread().open()) Group::of_this_thread().fail(error);
  return error;
}

Error check_memory(const char* function, const void* send, const void* recv, size_t count) {
  if (count == 0) return {};
  if (Error error = check_pointer(function, "send", send)) return error;
  return check_pointer(function, "recv", recv);
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

pithResult_t pithAllReduce(const void* send, void* recv, size_t count, pithDataType_t type,
                           pithRedOp_t op, pithComm_t comm, pithStream_t stream) {
  return guarded([&]() -> Error {
    constexpr const char* function = "pithAllReduce";
    Error error = check_communicator(function, comm);
    if (!error) error = check_type(function, type);
    if (!error) error = check_op(function, op);
    if (!error) error = check_count(function, "count", count, type, 1);
    if (!error) error = check_memory(function, send, recv, count);
    if (!error) error = check_stream(function, stream, send, recv);
    if (!error) {
      const CollectiveArgs args{Collective::allreduce,
                                bytes_at(send),
                                bytes_at(recv),
                                count,
                                static_cast<DType>(type),
                                static_cast<Op>(op),
                                0,
                                {}};
      error = submit(comm, args, stream);
    }
    return conclude(std::move(error));
  });
}

pithResult_t pithBroadcast(const void* send, void* recv, size_t count, pithDataType_t type,
                           int root, pithComm_t comm, pithStream_t stream) {
  return guarded([&]() -> Error {
    constexpr const char* function = "pithBroadcast";
    Error error = check_communicator(function, comm);
    if (!error) error = check_type(function, type);
    if (!error) error = check_root(function, root, comm->communicator->size());
    if (!error) error = check_count(function, "count", count, type, 1);
    if (!error && count > 0) error = check_pointer(function, "recv", recv);
    const bool is_root = !error && comm->communicator->rank() == root;
    if (is_root && count > 0) error = check_pointer(function, "send", send);
    if (!error) error = check_stream(function, stream, is_root ? send : recv, recv);
    if (!error) {
      const CollectiveArgs args{Collective::broadcast,
                                bytes_at(is_root ? send : recv),
                                bytes_at(recv),
                                count,
                                static_cast<DType>(type),
                                Op::sum,
                                root,
                                {}};
      error = submit(comm, args, stream);
    }
    return conclude(std::move(error));
  });
}

pithResult_t pithAllGather(const void* send, void* recv, size_t sendcount, pithDataType_t type,
                           pithComm_t comm, pithStream_t stream) {
  return guarded([&]() -> Error {
    constexpr const char* function = "pithAllGather";
    Error error = check_communicator(function, comm);
    if (!error) error = check_type(function, type);
    if (!error)
      error = check_count(function, "sendcount", sendcount, type, comm->communicator->size());
    if (!error) error = check_memory(function, send, recv, sendcount);
    if (!error) error = check_stream(function, stream, send, recv);
    if (!error) {
      const CollectiveArgs args{Collective::allgather,
                                bytes_at(send),
                                bytes_at(recv),
                                sendcount,
                                static_cast<DType>(type),
                                Op::sum,
                                0,
                                {}};
      error = submit(comm, args, stream);
    }
    return conclude(std::move(error));
  });
}

pithResult_t pithBarrier(pithComm_t comm, pithStream_t stream) {
  return guarded([&]() -> Error {
    constexpr const char* function = "pithBarrier";
    Error error = check_communicator(function, comm);
    if (!error) error = check_stream(function, stream);
    if (!error)
      error = submit(comm, {Collective::barrier, {}, {}, 0, DType::u8, Op::sum, 0, {}}, stream);
    return conclude(std::move(error));
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
