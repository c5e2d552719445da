// The numbers of a communicator's calls. Every rank counts them in the same order, so that a
// message finds the call to which it belongs. With its number a call gets its plan, by the
// parameters that hold from some number on. Used by the thread that issues the calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <variant>

#include "collectives/call_args.hpp"
#include "comm/call_planner.hpp"
#include "comm/pair_numbers.hpp"
#include "control/epoch_gate.hpp"
#include "core/call_number.hpp"
#include "core/process_fence.hpp"

namespace pith {

class CallNumbers {
 public:
  // `wait`: called where other parameters may hold from this call on; returns once the gate lets it
  // pass, or no call succeeds any more. `planner`: plans the calls.
  CallNumbers(std::size_t ranks, std::function<void(std::uint32_t number)> wait,
              CallPlanner& planner)
      : pairs_(ranks), wait_(std::move(wait)), planner_(planner) {}

  // Only one thread at a time writes the counter, so no locked operation is needed.
  std::uint32_t take() {
    const std::uint32_t number = next_.load(std::memory_order_relaxed);
    if (gate_.stops(number)) [[unlikely]] {
      wait_(number);
      change_parameters();
    }
    next_.store(next_number(number), std::memory_order_relaxed);
    fenced_from_elsewhere();
    return number;
  }
  // Any thread.
  std::uint32_t next() const { return next_.load(std::memory_order_relaxed); }
  EpochGate& gate() { return gate_; }
  // The version of parameters that the last call with a number has.
  std::uint32_t epoch() const { return epoch_; }

  // Takes the number of a call by its kind.
  std::uint32_t take_for(CollectiveArgs& args) {
    const std::uint32_t number = take();
    args.tuning.epoch = epoch_;
    planner_.plan(args);
    return number;
  }
  std::uint32_t take_for(CompressedArgs& args) {
    const std::uint32_t number = take();
    args.tuning.epoch = epoch_;
    return number;
  }
  // Point-to-point messages take no call number: other ranks may know nothing of them.
  std::uint32_t take_for(PairArgs& args) {
    pairs_.take(args.messages);
    return 0;
  }
  std::uint32_t take_for(CallArgs& args) {
    return std::visit([this](auto& kind) { return take_for(kind); }, args);
  }

 private:
  void change_parameters() {
    if (epoch_ == gate_.parameters()->version) return;
    epoch_ = gate_.parameters()->version;
    planner_.adopt(gate_.parameters()->blob);
  }

  std::atomic<std::uint32_t> next_{1};
  EpochGate gate_{next_};
  std::uint32_t epoch_ = 0;
  PairNumbers pairs_;
  const std::function<void(std::uint32_t)> wait_;
  CallPlanner& planner_;
};

}  // namespace pith
