// The times of compressed calls, and what they sent, by which later ones are planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/compressed.hpp"
#include "collectives/sparse/compressed_calls.hpp"

namespace pith {

// What this rank knows of the calls before.
struct CallBefore {
  double between_s = 0;          // as in DensityFacts, but of this rank; 0: not known
  double took_s = 0;             // the last one's own part of the time, if it was timed; else 0
  bool sent_is_known = true;     // that of the last one of all tensors:
  double squares_sent = 0;       // what did not remain
  double squares_all = 0;        // of what there was; NaN: not known
  CompressorStats::Timed timed;  // the last one that was timed
};

// The times of a call in progress; what it was timed is its own part of them.
class CallTimes {
 public:
  // Begins a call of so many elements in all tensors.
  CallTimes(CompressedCalls& calls, std::span<const CompressedTensor> tensors, std::size_t elements,
            std::uint64_t now_ns);
  ~CallTimes();
  CallTimes(const CallTimes&) = delete;

  const CallBefore& before() const { return before_; }
  // All ranks have agreed on something, so they go on at the same time: from here on it is timed.
  void agreed(std::uint64_t now_ns) { own_agreed_ = calls_.own_seconds(now_ns); }
  // Writes the times into the statistics of all tensors.
  void end(std::span<CompressedTensor> tensors, bool failed, std::uint64_t now_ns);

 private:
  CompressedCalls& calls_;
  const std::uint64_t step_;
  CallBefore before_;
  CompressorStats::Begun begun_;
  std::optional<double> own_agreed_;
  bool ended_ = false;
};

}  // namespace pith
