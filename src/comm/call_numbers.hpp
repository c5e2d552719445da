// The numbers of a communicator's calls. Every rank counts them in the same order, so that a
// message finds the call to which it belongs. Used by the thread that issues the calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "collectives/call_args.hpp"
#include "comm/pair_numbers.hpp"
#include "core/call_number.hpp"

namespace pith {

class CallNumbers {
 public:
  explicit CallNumbers(std::size_t ranks) : pairs_(ranks) {}

  // Only one thread at a time writes the counter, so no locked operation is needed.
  std::uint32_t take() {
    const std::uint32_t number = next_.load(std::memory_order_relaxed);
    next_.store(next_number(number), std::memory_order_relaxed);
    return number;
  }
  // Any thread.
  std::uint32_t next() const { return next_.load(std::memory_order_relaxed); }

  // Takes the number of a call by its kind.
  template <class Args>
  std::uint32_t take_for(const Args&) {
    return take();
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
  std::atomic<std::uint32_t> next_{1};
  PairNumbers pairs_;
};

}  // namespace pith
