// A compressor's statistics of its last call; see pithCompressorStats_t.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pith {

struct CompressorStats {
  std::size_t selected_local = 0;
  std::size_t selected_union = 0;
  float threshold = 0;
  int leader = -1;
  double squares_sent = 0;      // of what this rank sent
  double squares_all = 0;       // of gradient plus residual; NaN: not all of it was read
  double squares_lost = 0;      // of sums that were not delivered; what has feedback remains here
  bool told_nan = false;        // NaN was delivered, and nothing sent
  std::uint64_t next_step = 0;  // after the call, if it has succeeded; else 0
  double residual_squares = 0;
  double imbalance = 1;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::string_view algorithm = "none";  // static storage
  bool bypassed = false;
  std::uint64_t nonfinite = 0;
  double select_seconds = 0;
  double exchange_seconds = 0;
  double total_seconds = 0;
  double predicted_seconds = 0;  // by the model; 0: not predicted
  // The clocks of the communicator's compressed calls when this one began; see CompressedCalls.
  struct Begun {
    std::uint64_t at_ns = 0;  // by monotonic_ns(); 0: there was no call
    double busy_seconds = 0;
    std::uint64_t elements = 0;  // this call's included
  } begun;
  // The last call that ranks began at the same time, after an agreement: its step, and its own part
  // of the time from then on. Survives calls that are not timed.
  struct Timed {
    std::uint64_t step = 0;
    double seconds = 0;
  } timed;
};

}  // namespace pith
