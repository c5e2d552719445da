// Stream capture: operations become nodes of a graph instead of running.
#include <algorithm>

#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

thread_local CUstreamCaptureMode thread_mode = kCaptureGlobal;

// The driver's rule about potentially unsafe calls of a thread during a capture.
bool forbids(const Capture& capture) {
  if (thread_mode == kCaptureRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return capture.mode != kCaptureRelaxed;
  return thread_mode == kCaptureGlobal && capture.mode == kCaptureGlobal;
}

void mark_ancestors(CUgraphNode node, std::vector<bool>& seen) {
  if (seen[node->index]) return;
  seen[node->index] = true;
  for (CUgraphNode before : node->after) mark_ancestors(before, seen);
}

// Every stream's last work must lie before the end of the origin stream.
bool is_joined(const Capture& capture) {
  std::vector<bool> seen(capture.graph->body->nodes.size());
  for (CUgraphNode node : capture.origin->frontier) mark_ancestors(node, seen);
  for (CUstream stream : capture.streams) {
    for (CUgraphNode node : stream->frontier) {
      if (!seen[node->index]) return false;
    }
  }
  return true;
}

void leave(Capture& capture) {
  const std::vector<CUstream> streams = capture.streams;
  std::erase_if(state().captures, [&](const auto& entry) { return entry.get() == &capture; });
  for (CUstream stream : streams) {
    stream->frontier.clear();
    stream->capture = nullptr;  // the last one may end the capture's life
  }
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, std::uint64_t* id,
                      CUgraph* graph, const CUgraphNode** dependencies, std::size_t* count) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream == nullptr) return result;
  if (CUresult r = check_capture(stream); r == kErrorCaptureImplicit) return r;
  if (!stream->capture) {
    *status = kCaptureNone;
    return kSuccess;
  }
  *status = stream->capture->invalid ? kCaptureInvalidated : kCaptureActive;
  if (stream->capture->invalid) return kSuccess;
  stream->reported = stream->frontier;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph;
  if (dependencies != nullptr) *dependencies = stream->reported.data();
  if (count != nullptr) *count = stream->reported.size();
  return kSuccess;
}

}  // namespace

void invalidate(Capture& capture) { capture.invalid = true; }

void abandon(Capture& capture) {
  delete capture.graph;
  const auto keep = capture.origin->capture;
  leave(capture);
}

CUresult check_capture(CUstream stream) {
  if (stream->capture) return stream->capture->invalid ? kErrorCaptureInvalidated : kSuccess;
  if (!stream->legacy()) return kSuccess;
  CUresult result = kSuccess;
  for (CUstream other : state().streams) {
    if (other->capture && other->blocking() && other->context == stream->context) {
      invalidate(*other->capture);
      result = kErrorCaptureImplicit;
    }
  }
  return result;
}

void record_node(CUstream stream, Operation operation) {
  GraphBody& body = *stream->capture->graph->body;
  auto node = std::make_unique<CUgraphNode_st>();
  node->index = body.nodes.size();
  node->lane = stream->lane;
  node->after = std::move(stream->frontier);
  node->run = std::move(operation);
  stream->frontier = {node.get()};
  body.nodes.push_back(std::move(node));
}

CUresult enter_unsafe(Call call) {
  if (CUresult r = enter(call); r != kSuccess) return r;
  return check_unsafe();
}

CUresult check_unsafe() {
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  for (const auto& capture : state().captures) {
    if (!forbids(*capture)) continue;
    invalidate(*capture);
    result = kErrorCaptureUnsupported;
  }
  return result;
}

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (mode < kCaptureGlobal || mode > kCaptureRelaxed) return kErrorInvalidValue;
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream == nullptr) return result;
  if (stream->legacy()) return kErrorCaptureUnsupported;
  if (stream->capture) return kErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = state().next_id++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->streams = {stream};
  capture->graph = new CUgraph_st;
  stream->capture = capture;
  stream->lane = 0;
  stream->frontier.clear();
  state().captures.push_back(std::move(capture));
  return kSuccess;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (graph == nullptr) return kErrorInvalidValue;
  *graph = nullptr;
  std::lock_guard lock(state().mutex);
  CUresult result = kSuccess;
  CUstream stream = resolve(handle, result);
  if (stream == nullptr) return result;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return kErrorIllegalState;
  if (capture->mode != kCaptureRelaxed && capture->thread != std::this_thread::get_id())
    return kErrorCaptureWrongThread;
  if (stream != capture->origin) {
    invalidate(*capture);
    return kErrorCaptureUnmatched;
  }
  result = capture->invalid       ? kErrorCaptureInvalidated
           : !is_joined(*capture) ? kErrorCaptureUnjoined
                                  : kSuccess;
  leave(*capture);
  if (result == kSuccess) {
    *graph = capture->graph;
  } else {
    delete capture->graph;
  }
  return result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return capture_info(stream, status, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status,
                                   std::uint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, std::size_t* count) {
  return capture_info(stream, status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status,
                                   std::uint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
                                   std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;  // all edges are plain
  return capture_info(stream, status, id, graph, dependencies, count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (*mode < kCaptureGlobal || *mode > kCaptureRelaxed) return kErrorInvalidValue;
  std::swap(thread_mode, *mode);
  return kSuccess;
}

void pithStubCapturesBody(CUstream stream) {
  std::lock_guard lock(state().mutex);
  stream->capture->of_body = true;
}

}  // extern "C"

}  // namespace pith::cuda
