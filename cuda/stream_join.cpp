#include "cuda/stream_join.hpp"

namespace pith::cuda {

StreamJoin::~StreamJoin() {
  if (!event_) return;
  const Current current(device_);
  device_.driver().event_destroy(event_);
}

Error StreamJoin::result_of(const char* what, CUresult result) const {
  return result == kSuccess ? Error() : device_.error(what, result);
}

Error StreamJoin::prepare() {
  if (event_) return {};
  const Current current(device_);
  const RelaxedCapture relaxed(device_.driver());
  const CUresult made = device_.driver().event_create(&event_, kEventDisableTiming);
  return result_of("cuEventCreate", made);
}

Error StreamJoin::record(CUstream stream) const {
  return result_of("cuEventRecord", device_.driver().event_record(event_, stream));
}

Error StreamJoin::wait(CUstream stream) const {
  return result_of("cuStreamWaitEvent", device_.driver().stream_wait_event(stream, event_, 0));
}

// The first stream waits for the others, then they wait for it.
Error StreamJoin::join(std::span<const CUstream> streams) {
  if (streams.size() < 2) return {};
  if (Error error = prepare()) return error;
  const Current current(device_);
  const std::span<const CUstream> others = streams.subspan(1);
  for (const CUstream other : others) {
    if (Error error = record(other)) return error;
    if (Error error = wait(streams[0])) return error;
  }
  if (Error error = record(streams[0])) return error;
  for (const CUstream other : others) {
    if (Error error = wait(other)) return error;
  }
  return {};
}

}  // namespace pith::cuda
