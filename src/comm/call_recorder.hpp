// The flight recorder: the last calls of one rank on one communicator. What, when, and whether they
// ended.
//
// Written by whoever drives the engine, read by any thread: plain atomic words, a few stores a
// call and no clock. The time is what whoever looks regularly has told last.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "comm/completed_calls.hpp"
#include "comm/control_plane.hpp"

namespace pith {

class CallRecorder {
 public:
  // Number 0: messages between pairs, which do not count among the calls; nor do captured calls.
  void begin(std::uint32_t number, std::uint64_t digest, const CollectiveArgs& args);
  void end(std::uint32_t number, bool well);

  // Some times a second; calls are stamped with it.
  void tell_time(std::uint64_t now_ns) {
    now_ms_.store(static_cast<std::uint32_t>(now_ns / 1'000'000), std::memory_order_relaxed);
  }

  std::optional<CallNote> find(std::uint32_t number) const;
  // The lowest number that has begun and not ended.
  std::optional<CallNote> oldest_unfinished() const;
  // Up to this call, counting from 1, all have ended well; 0: none.
  std::uint64_t last_completed() const { return completed_.count(); }
  // The last calls, a line each, for the log.
  std::vector<std::string> lines() const;

 private:
  static constexpr std::size_t kept = 64;
  enum State : std::uint32_t { running, ended_well, failed };
  struct alignas(64) Entry {
    std::atomic<std::uint32_t> number{0};  // 0 while the others are being written
    std::atomic<std::uint32_t> state{running};
    std::atomic<std::uint64_t> digest{0};
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint32_t> what{0};  // collective, type, operation
    std::atomic<int> root{0};
    std::atomic<std::uint32_t> begun_ms{0};
    std::atomic<std::uint32_t> ended_ms{0};
    std::atomic<std::uint32_t> tensors{0};  // of a compressed call, which has what follows
    std::atomic<std::uint64_t> step{0};
    std::atomic<std::uint64_t> scale{0};  // bits of a double
    std::array<std::atomic<std::uint64_t>, 3> spec{};
  };
  struct Read {
    CallNote note;
    State state;
    std::uint32_t begun_ms;
    std::uint32_t ended_ms;
  };
  static std::optional<Read> read(const Entry& entry);
  std::string line_of(const Read& call) const;
  static void write_compressed(Entry& entry, std::span<const CompressedTensor> tensors);
  static std::string describe_compressed(const Entry& entry, CollectiveArgs args);
  Entry& entry(std::uint32_t number) { return entries_[number % kept]; }

  std::array<Entry, kept> entries_;
  CompletedCalls completed_;
  std::atomic<int> pairs_running_{0};
  std::atomic<std::uint32_t> now_ms_{0};
};

// "allreduce of 10 float, sum" or "broadcast of 10 float from root 3".
std::string describe(const CollectiveArgs& args);

}  // namespace pith
