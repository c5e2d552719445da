// The trace of one communicator's calls, if the setting TRACE asks for it. It is recorded once all
// ranks are connected, and written to a file when the communicator ends.
//
// For calls on CUDA streams it records messages but no kernels.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/call_step.hpp"
#include "core/record.hpp"
#include "transport/trace.hpp"

namespace pith {

class CallTrace {
 public:
  // Opens the file; logs a warning if it cannot. From then on everything reached through `context`
  // and `routes` is recorded. They, and what they point to, must outlive every call and this
  // object.
  CallTrace(const std::string& path, int rank, CallContext& context, std::span<Route> routes);
  ~CallTrace();
  CallTrace(const CallTrace&) = delete;
  CallTrace& operator=(const CallTrace&) = delete;

  // With the engine's token. `args`: the arguments of begin_call() for the kind of call.
  template <class... Args>
  void begin(std::uint32_t number, const Args&... args) {
    running_.emplace_back(number, begin_call(recorder_, number, args...));
  }
  void end(std::uint32_t number, bool well);

 private:
  TracedTransport* traced(Transport* transport);

  const std::string path_;
  std::ofstream file_;
  Recorder recorder_;
  Trace trace_;
  TracedCompute compute_;
  std::vector<std::pair<Transport*, std::unique_ptr<TracedTransport>>> transports_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> running_;  // call numbers and their steps
};

}  // namespace pith
