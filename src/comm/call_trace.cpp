#include "comm/call_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "core/clock.hpp"
#include "core/log.hpp"

namespace pith {

namespace {

std::int64_t wall_offset_ns() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() -
         static_cast<std::int64_t>(monotonic_ns());
}

}  // namespace

CallTrace::CallTrace(const std::string& path, int rank, CallContext& context,
                     std::span<Route> routes)
    : path_(path),
      file_(path, std::ios::trunc),
      recorder_(rank, context.size, monotonic_ns, Recorder::default_steps, wall_offset_ns()),
      compute_(*context.compute, recorder_) {
  if (!file_) {
    log(LogLevel::warn, system_error(fmt::format("PITH_TRACE: {}", path), errno).message());
  }
  for (Route& route : routes) {
    if (route.transport) route.transport = traced(route.transport);
  }
  context.compute = context.host = &compute_;
  context.scheduler->observer = context.mailbox->observer = &trace_;
  trace_.add(*context.comm, recorder_);
}

CallTrace::~CallTrace() {
  if (!file_) return;
  file_ << recorder_.text();
  if (!file_.flush()) {
    log(LogLevel::warn, fmt::format("PITH_TRACE: the trace could not be written to {}", path_));
  }
}

TracedTransport* CallTrace::traced(Transport* transport) {
  for (const auto& [inner, decorator] : transports_) {
    if (inner == transport) return decorator.get();
  }
  transports_.emplace_back(transport, std::make_unique<TracedTransport>(*transport, trace_));
  return transports_.back().second.get();
}

void CallTrace::end(std::uint32_t number, bool well) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [=](const auto& running) { return running.first == number; });
  if (found == running_.end()) return;
  if (Step* step = recorder_.find(found->second)) step->failed = !well;
  recorder_.end(found->second, {});
  running_.erase(found);
}

}  // namespace pith
