// One call of all ranks, ready to be drawn: steps on a common time axis, messages paired.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace pith_trace {

// A step as in a trace file. Times in microseconds.
struct Step {
  std::uint64_t id = 0;
  std::string op;  // call, send, receive, kernel
  std::string name;
  std::uint32_t call = 0;
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
  int peer = -1;
  std::uint64_t bytes = 0;
  std::uint32_t buffer = 0;
  std::uint64_t offset = 0;
  double begin_us = 0;
  double end_us = 0;
  bool ended = false;
  bool failed = false;
  std::vector<std::uint64_t> waits;
};

struct RankTrace {
  int rank = 0;
  int ranks = 1;
  std::uint64_t dropped = 0;
  double wall_offset_us = 0;
  std::vector<Step> steps;  // in the order of their starts
};

// Reads a file made by PITH_TRACE, or Recorder::text(). `name` is for error messages.
pith::Expected<RankTrace> read_trace(const std::string& text, const std::string& name);

struct Message {
  int from = 0;
  int to = 0;
  std::size_t send = 0;     // index into the sender's steps
  std::size_t receive = 0;  // index into the receiver's
};

struct Picture {
  std::string title;
  std::vector<RankTrace> ranks;  // by rank
  std::vector<Message> messages;
  std::size_t unpaired = 0;  // sends and receives without their counterpart
  double end_us = 0;         // the first step begins at 0

  std::uint64_t bytes_sent(int rank) const;
};

struct CallInfo {
  std::uint32_t number = 0;
  std::string name;
  std::uint64_t bytes = 0;
  double us = 0;  // on the first rank
};

// The calls recorded completely by all ranks, oldest first.
std::vector<CallInfo> complete_calls(const std::vector<RankTrace>& ranks);

// All steps of the call, on the first rank's clock. Each rank must occur once.
pith::Expected<Picture> picture_of(std::vector<RankTrace> ranks, std::uint32_t call);

// A trace-event file for chrome://tracing and ui.perfetto.dev.
std::string chrome_json(const Picture& picture);

// A lane per rank: kernels as bars, messages as arrows from the start of the send to the end of the
// receive. Only the first `most_messages` are drawn, and the picture says so.
std::string svg(const Picture& picture, std::size_t most_messages);

}  // namespace pith_trace
