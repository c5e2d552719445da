// A rank's side of a communicator whose parameters change: takes numbers of calls, and has a gate.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "control/epoch_gate.hpp"
#include "control_world.hpp"
#include "core/call_number.hpp"
#include "core/process_fence.hpp"

namespace pith::test {

// Its numbers are taken as CallNumbers does.
class Caller {
 public:
  explicit Caller(std::uint32_t first) : next_(first) {}

  // False: must wait, or must not begin.
  bool take() {
    const std::uint32_t number = next_.load(std::memory_order_relaxed);
    waits_ = barred_ = false;
    if (gate_.stops(number)) {
      const EpochGate::Passage passage = gate_.pass(number);
      waits_ = passage == EpochGate::Passage::waits;
      barred_ = passage == EpochGate::Passage::barred;
      if (waits_ || barred_) return false;
    }
    next_.store(next_number(number), std::memory_order_relaxed);
    fenced_from_elsewhere();
    ++taken_;
    return true;
  }
  bool waits() const { return waits_; }
  bool barred() const { return barred_; }
  std::uint64_t taken() const { return taken_; }
  std::uint32_t version() const { return gate_.parameters()->version; }
  const std::string& blob() const { return gate_.parameters()->blob; }
  EpochGate& gate() { return gate_; }

 private:
  std::atomic<std::uint32_t> next_;
  EpochGate gate_{next_};
  bool waits_ = false;
  bool barred_ = false;
  std::uint64_t taken_ = 0;
};

class EpochWatcher final : public RecordingWatcher {
 public:
  explicit EpochWatcher(EpochGate& gate) : gate_(gate) {}
  EpochGate* epoch_gate() override { return &gate_; }

 private:
  EpochGate& gate_;
};

struct Member {
  Member(int job_rank, std::uint32_t first) : rank(job_rank), caller(first) {}
  const int rank;  // of the job
  Caller caller;
  EpochWatcher watcher{caller.gate()};
  bool away = false;  // has released the communicator
};

}  // namespace pith::test
