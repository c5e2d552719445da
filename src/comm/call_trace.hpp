// The trace of one communicator's calls, as the setting TRACE asks for it: recorded from the moment
// all is connected, written to a file at the communicator's end.
//
// Of calls on CUDA streams the messages are recorded, the kernels are not.
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
  // Opens the file and logs where it cannot. From then on what `context` and `routes` lead to is
  // recorded; they, and what they point to, must outlive every call and this.
  CallTrace(const std::string& path, int rank, CallContext& context, std::span<Route> routes);
  ~CallTrace();
  CallTrace(const CallTrace&) = delete;
  CallTrace& operator=(const CallTrace&) = delete;

  // With the engine's token. `args`: what begin_call() takes of a kind of call.
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
