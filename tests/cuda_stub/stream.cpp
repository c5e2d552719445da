// Streams: handles, the legacy stream's implicit order, and submission.
#include <algorithm>

#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

// The legacy stream waits for all blocking streams of its context, and they wait for it.
void order_after(CUstream stream, CUstream other) {
  if (other->queue->idle()) return;
  stream->queue->push(
      [queue = other->queue, ticket = other->queue->tail()] { queue->wait(ticket); }, true);
}

struct Tail {
  std::shared_ptr<Queue> queue;
  std::uint64_t ticket = 0;
};

// A call that no stream can take while it is captured: the capture ends too.
CUresult refuse_captured(CUstream stream) {
  if (!stream->capture) return check_capture(stream);
  const bool already = stream->capture->invalid;
  invalidate(*stream->capture);
  return already ? kErrorCaptureInvalidated : kErrorCaptureUnsupported;
}

// What is so whether or not the stream is captured.
template <class Read>
CUresult read_stream(CUstream handle, const Read& read) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream != nullptr) read(*stream);
  return result;
}

// What one call on the stream has to wait for.
CUresult tail_of(CUstream handle, Tail& tail, CUcontext& context) {
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream == nullptr) return result;
  if (CUresult r = refuse_captured(stream); r != kSuccess) return r;
  // The legacy stream is done only when what it must follow is: give it a marker.
  if (stream->legacy()) enqueue(stream, [] {});
  context = stream->context;
  tail = Tail{stream->queue, stream->queue->tail()};
  return kSuccess;
}

// One of `most`, for the nth stream; null: it needs none.
std::shared_ptr<HardwareQueue> next_of(std::vector<std::shared_ptr<HardwareQueue>>& queues,
                                       std::size_t most, std::size_t nth) {
  if (most == 0) return nullptr;
  if (queues.size() < most) return queues.emplace_back(std::make_shared<HardwareQueue>());
  return queues[nth % most];
}

// A failed context's, too, lets others have their turn.
Operation in_turn(std::shared_ptr<HardwareQueue> queue, Operation operation) {
  const std::uint64_t turn = queue->take_turn();
  return [queue = std::move(queue), turn, run = std::move(operation)] {
    queue->await_turn(turn);
    run();
    queue->pass();
  };
}

}  // namespace

CUstream make_stream(CUcontext context, unsigned flags, int priority) {
  auto stream = std::make_unique<CUstream_st>();
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  const StubQueues& shared = state().queues;
  const std::size_t nth = context->streams_made++;
  stream->queue = Queue::start(next_of(context->hardware[priority], shared.connections, nth));
  stream->copies = next_of(context->copy_queues, shared.copy_queues, nth);
  return *state().streams.insert(stream.release()).first;
}

CUstream resolve(CUstream handle, CUresult& result) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value > kStreamPerThread) {
    if (state().streams.count(handle) != 0) return handle;
    result = kErrorInvalidHandle;
    return nullptr;
  }
  CUcontext context = current_context();
  if (context == nullptr) {
    result = kErrorInvalidContext;
    return nullptr;
  }
  const bool legacy = value != kStreamPerThread;
  CUstream& slot = legacy ? context->legacy : context->per_thread[std::this_thread::get_id()];
  if (slot == nullptr) slot = make_stream(context, kStreamDefault, 0);
  return slot;
}

void enqueue(CUstream stream, Operation operation, bool holds) {
  CUcontext context = stream->context;
  if (stream->legacy()) {
    for (CUstream other : state().streams) {
      if (other != stream && other->context == context && other->blocking())
        order_after(stream, other);
    }
  } else if (stream->blocking() && context->legacy != nullptr) {
    order_after(stream, context->legacy);
  }
  stream->queue->push(std::move(operation), holds);
}

CUresult submit(CUstream handle, Operation given, Sort sort) {
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream == nullptr) return result;
  if (CUresult r = check_capture(stream); r != kSuccess) return r;
  const bool is_memory_operation = sort == Sort::write || sort == Sort::wait;
  if (is_memory_operation && stream->capture && stream->capture->of_body) {
    invalidate(*stream->capture);
    return kErrorNotSupported;
  }
  if (CUresult fault = stream->context->fault; fault != kSuccess) return fault;
  // Once a context has failed it runs nothing of what was queued before.
  CUcontext context = stream->context;
  if (!stream->capture && context->until_failure >= 0 && context->until_failure-- == 0) {
    if (context->refuses) return kErrorNotSupported;
    given = [context] {
      context->paused = false;
      context->fault = kErrorLaunchFailed;
    };
    enqueue(stream, std::move(given));
    return kSuccess;
  }
  Operation operation = [context, run = std::move(given)] {
    while (context->paused) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (context->fault == kSuccess) run();
  };
  if (stream->capture) {
    record_node(stream, std::move(operation));
    return kSuccess;
  }
  if (sort == Sort::host_copy && stream->copies) {
    operation = in_turn(stream->copies, std::move(operation));
  }
  enqueue(stream, std::move(operation), sort == Sort::wait);
  return kSuccess;
}

void drain(CUcontext context) {
  if (in_callback()) return;  // it would wait for itself
  std::vector<Tail> tails;
  {
    std::lock_guard lock(state().mutex);
    for (CUstream stream : state().streams) {
      if (stream->context == context) tails.push_back({stream->queue, stream->queue->tail()});
    }
  }
  for (const Tail& tail : tails) tail.queue->wait(tail.ticket);
}

void drain_to_free(CUcontext context) {
  ++state().freeing;
  drain(context);
  --state().freeing;
}

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (stream == nullptr || flags > kStreamNonBlocking) return kErrorInvalidValue;
  if (CUresult fault = current_context()->fault; fault != kSuccess) return fault;
  std::lock_guard lock(state().mutex);
  const int greatest = 1 - state().queues.priorities;
  *stream = make_stream(current_context(), flags, std::clamp(priority, greatest, 0));
  return kSuccess;
}

// Returns at once; what was queued still runs.
CUresult cuStreamDestroy_v2(CUstream handle) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (reinterpret_cast<std::uintptr_t>(handle) <= kStreamPerThread) return kErrorInvalidHandle;
  std::lock_guard lock(state().mutex);
  if (state().streams.erase(handle) == 0) return kErrorInvalidHandle;
  if (handle->capture) {
    invalidate(*handle->capture);
    if (handle->capture->origin == handle) {
      abandon(*handle->capture);
    } else {
      std::erase(handle->capture->streams, handle);
    }
  }
  // The legacy stream keeps following work of a destroyed stream.
  if (handle->blocking() && handle->context->legacy != nullptr)
    order_after(handle->context->legacy, handle);
  handle->queue->close();
  delete handle;
  return kSuccess;
}

CUresult cuStreamSynchronize(CUstream handle) {
  if (CUresult r = enter(Call::sync); r != kSuccess) return r;
  Tail tail;
  CUcontext context = nullptr;
  if (CUresult r = tail_of(handle, tail, context); r != kSuccess) return r;
  if (CUresult r = check_unsafe(); r != kSuccess) return r;
  if (!in_callback()) tail.queue->wait(tail.ticket);
  return context->fault;
}

CUresult cuStreamQuery(CUstream handle) {
  if (CUresult r = enter(Call::query); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream == nullptr) return result;
  if (CUresult r = refuse_captured(stream); r != kSuccess) return r;
  if (CUresult fault = stream->context->fault; fault != kSuccess) return fault;
  bool idle = stream->queue->idle();
  for (CUstream other : state().streams) {
    const bool followed =
        stream->legacy() && other->context == stream->context && other->blocking();
    idle = idle && (!followed || other->queue->idle());
  }
  return idle ? kSuccess : kErrorNotReady;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return read_stream(handle, [&](const CUstream_st& stream) { *context = stream.context; });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return read_stream(handle, [&](const CUstream_st& stream) { *priority = stream.priority; });
}

}  // extern "C"

}  // namespace pith::cuda
