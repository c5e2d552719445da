// Finds calls that make no progress. The control thread looks several times a second and logs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "collectives/pair_windows.hpp"
#include "comm/links.hpp"
#include "control/call_recorder.hpp"
#include "control/comm_watcher.hpp"

namespace pith {

class CallWatch {
 public:
  // `windows`: how point-to-point messages are cut into pieces.
  CallWatch(Links& links, CallRecorder& recorder, const PairWindows& windows);
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  std::optional<Stall> look(std::uint64_t now_ns);
  void tell(const Stall& stall) const;

 private:
  void look_at_what_lasts(const std::optional<CallNote>& call, std::uint64_t now_ns);
  void look_who_is_waited_for();

  Links& links_;
  CallRecorder& recorder_;
  const PairWindows& windows_;
  struct {
    bool any = false;
    std::uint32_t call = 0;
    std::uint32_t moves = 0;
    std::uint64_t since_ns = 0;
  } watched_;
  struct {
    bool any = false;
    std::uint32_t call = 0;
    std::uint64_t since_ns = 0;
  } lasting_;  // the oldest call
  Work look_work_;
  std::atomic<bool> look_posted_{false};
  std::atomic<int> waits_for_{-1};
};

}  // namespace pith
