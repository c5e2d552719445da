// The trace of one rank: its calls, messages and kernels, with their times and what they waited
// for. The decorators of transport/trace.hpp fill it; without them nothing here runs.
//
// Bounded: new steps overwrite the oldest ones. Not thread-safe: only the thread that drives the
// engine writes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.hpp"

namespace pith {

struct Step {
  enum class Op : std::uint8_t { call, send, receive, kernel };
  // A buffer and an offset in it, since addresses differ from run to run. Buffer 0: no named buffer
  // of this rank, as for a message in its slot or a peer's memory.
  struct Place {
    std::uint32_t buffer = 0;
    std::uint64_t offset = 0;
  };
  static constexpr std::size_t most_waits = 4;

  Op op = Op::call;
  bool failed = false;
  bool ended = false;
  std::uint16_t lane = 0;
  std::uint32_t step = 0;
  std::uint32_t call = 0;  // 0: unknown, or a point-to-point message
  int peer = -1;
  std::uint64_t id = 0;     // counts the recorder's steps from 1
  std::uint64_t bytes = 0;  // of the message, the kernel's work, or the call's send buffer
  Place place;              // what is sent, received or written
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  std::string_view name;       // of the kernel or collective; a static string
  std::string_view algorithm;  // of a call
  // The steps whose results or fence this step waited for; 0: none.
  std::array<std::uint64_t, most_waits> waits{};
};

std::string_view name_of(Step::Op op);

class Recorder {
 public:
  static constexpr std::size_t default_steps = 32768;

  // Times are now()'s. wall_offset_ns is added to get the time of day, for merging traces of hosts.
  Recorder(int rank, int ranks, std::function<std::uint64_t()> now,
           std::size_t most_steps = default_steps, std::int64_t wall_offset_ns = 0);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::uint64_t now() const { return now_(); }

  // Names memory of this rank for the steps that follow. The same memory keeps its number.
  void name_buffer(ConstBytes memory, std::string_view what);

  // Sets id, begin and place, and adds to `waits` the steps that wrote what `reads` covers. Returns
  // the id.
  std::uint64_t begin(Step step, ConstBytes at, std::span<const ConstBytes> reads);
  // `writes`: the memory that now holds the step's result. The step may have been overwritten.
  void end(std::uint64_t id, std::span<const ConstBytes> writes);
  // The step, to be corrected; null if it is overwritten.
  Step* find(std::uint64_t id);

  // The steps that are kept, oldest first. dropped(): how many were overwritten.
  std::vector<Step> steps() const;
  std::uint64_t dropped() const { return count_ > ring_.size() ? count_ - ring_.size() : 0; }

  // One JSON object per line: a head with rank and ranks, then the buffers, then the steps.
  std::string text() const;

 private:
  struct Buffer {
    ConstBytes memory;
    std::uint32_t number = 0;
    std::string_view what;
  };
  struct Write {
    ConstBytes memory;
    std::uint64_t id = 0;
  };
  static constexpr std::size_t most_buffers = 256;
  static constexpr std::size_t remembered_writes = 128;

  Step::Place place_of(const std::byte* data) const;
  void wait_for_writers(Step& step, ConstBytes read) const;

  const int rank_;
  const int ranks_;
  const std::function<std::uint64_t()> now_;
  const std::int64_t wall_offset_ns_;
  std::vector<Step> ring_;
  std::uint64_t count_ = 0;
  std::vector<Buffer> buffers_;  // least recently named first
  std::uint32_t numbers_ = 0;
  std::array<Write, remembered_writes> writes_{};
  std::uint64_t write_count_ = 0;
};

}  // namespace pith
