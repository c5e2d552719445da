// Events: points in a stream, and under capture the edges of a graph.
#include <algorithm>

#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

// A node or stream operation that records the event when it runs.
Operation recording(std::shared_ptr<EventBody> body) {
  return [body = std::move(body)] {
    auto record = std::make_shared<Record>();
    record->finish();
    std::lock_guard lock(body->mutex);
    body->record = std::move(record);
  };
}

Operation waiting(std::shared_ptr<EventBody> body) {
  return [body = std::move(body)] {
    std::shared_ptr<Record> record;
    {
      std::lock_guard lock(body->mutex);
      record = body->record;
    }
    if (record) record->wait();
  };
}

std::shared_ptr<Record> record_of(CUevent event) {
  std::lock_guard lock(event->body->mutex);
  return event->body->record;
}

CUresult fail_capture(CUstream stream, CUresult error) {
  if (stream->capture) invalidate(*stream->capture);
  return error;
}

// Makes the stream part of the capture (or adds an edge if it is already).
CUresult join_capture(CUstream stream, CUevent event) {
  std::shared_ptr<Capture> capture = event->capture.lock();
  if (!capture) return fail_capture(stream, kErrorCapturedEvent);
  if (capture->invalid) return fail_capture(stream, kErrorCaptureInvalidated);
  if (stream->legacy()) {
    invalidate(*capture);
    return kErrorCaptureImplicit;
  }
  if (stream->capture && stream->capture != capture) {
    invalidate(*capture);
    return fail_capture(stream, kErrorCaptureMerge);
  }
  if (!stream->capture) {
    stream->capture = capture;
    stream->lane = capture->graph->body->lanes++;
    stream->frontier.clear();
    capture->streams.push_back(stream);
  }
  for (CUgraphNode node : event->frontier) {
    if (std::find(stream->frontier.begin(), stream->frontier.end(), node) == stream->frontier.end())
      stream->frontier.push_back(node);
  }
  return kSuccess;
}

// For calls that may not touch an event of a capture.
CUresult enter_event(CUevent event, Call call) {
  if (CUresult r = enter(call); r != kSuccess) return r;
  if (event == nullptr) return kErrorInvalidHandle;
  {
    std::lock_guard lock(state().mutex);
    if (event->captured) {
      if (auto capture = event->capture.lock()) invalidate(*capture);
      return kErrorCapturedEvent;
    }
  }
  return check_unsafe();
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (event == nullptr) return kErrorInvalidValue;
  auto created = std::make_unique<CUevent_st>();
  created->context = current_context();
  created->flags = flags;
  *event = created.release();
  return kSuccess;
}

CUresult cuEventDestroy_v2(CUevent event) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (event == nullptr) return kErrorInvalidHandle;
  std::lock_guard lock(state().mutex);
  delete event;
  return kSuccess;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return cuEventRecordWithFlags(event, stream, 0);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (event == nullptr) return kErrorInvalidHandle;
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream == nullptr) return result;
  if (CUresult r = check_capture(stream); r != kSuccess) return r;
  if (event->context != stream->context) return kErrorInvalidHandle;
  if (stream->capture && flags == kEventRecordExternal) {
    record_node(stream, recording(event->body));
    return kSuccess;
  }
  if (flags != 0) return kErrorInvalidValue;
  event->captured = stream->capture != nullptr;
  if (stream->capture) {
    event->capture = stream->capture;
    event->frontier = stream->frontier;
    return kSuccess;
  }
  auto record = std::make_shared<Record>();
  {
    std::lock_guard body_lock(event->body->mutex);
    event->body->record = record;
  }
  enqueue(stream, [record] { record->finish(); });
  return kSuccess;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (event == nullptr) return kErrorInvalidHandle;
  if (flags > kEventWaitExternal) return kErrorInvalidValue;
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream == nullptr) return result;
  if (CUresult r = check_capture(stream); r != kSuccess) return r;
  if (stream->capture && flags == kEventWaitExternal) {
    record_node(stream, waiting(event->body));
    return kSuccess;
  }
  if (flags != 0) return kErrorInvalidValue;
  if (event->captured) return join_capture(stream, event);
  std::shared_ptr<Record> record = record_of(event);
  if (!record) return kSuccess;
  if (stream->capture) return fail_capture(stream, kErrorCaptureIsolation);
  enqueue(
      stream, [record] { record->wait(); }, true);
  return kSuccess;
}

CUresult cuEventQuery(CUevent event) {
  if (CUresult r = enter_event(event, Call::query); r != kSuccess) return r;
  std::shared_ptr<Record> record = record_of(event);
  if (CUresult fault = event->context->fault; fault != kSuccess) return fault;
  return !record || record->finished() ? kSuccess : kErrorNotReady;
}

CUresult cuEventSynchronize(CUevent event) {
  if (CUresult r = enter_event(event, Call::sync); r != kSuccess) return r;
  std::shared_ptr<Record> record = record_of(event);
  if (record && !in_callback()) record->wait();
  return event->context->fault;
}

CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (start == nullptr || end == nullptr) return kErrorInvalidHandle;
  if (((start->flags | end->flags) & kEventDisableTiming) != 0) return kErrorInvalidHandle;
  std::shared_ptr<Record> first = record_of(start), second = record_of(end);
  if (!first || !second) return kErrorInvalidHandle;
  if (!first->finished() || !second->finished()) return kErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(second->time - first->time).count();
  return kSuccess;
}

}  // extern "C"

}  // namespace pith::cuda
