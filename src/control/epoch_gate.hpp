// The parameters of one rank's communicator, which change between two calls that are the same ones
// on all ranks (epochs.hpp). The control thread promises that this rank's calls stop at one that is
// near, and tells later how the change ended, and from which call it holds: that one or a later
// one, where the stop moves to. The thread that issues calls asks at each one by a load and a
// comparison.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/error.hpp"

namespace pith {

struct EpochParameters {
  std::uint32_t version = 0;  // rises with each change; 0: those of the start
  std::string blob = {};
};

class EpochGate {
 public:
  // `next`: the number of the next call. After storing it, the thread that issues calls must call
  // fenced_from_elsewhere() before it comes to the next one.
  explicit EpochGate(const std::atomic<std::uint32_t>& next) : next_(next) {}
  EpochGate(const EpochGate&) = delete;
  EpochGate& operator=(const EpochGate&) = delete;

  // --- by the thread that issues calls ---

  // Before it takes this number: whether pass() must let it.
  bool stops(std::uint32_t number) const { return number == stop_.load(std::memory_order_relaxed); }
  enum class Passage {
    open,
    waits,  // for commit or cancel; ask again
    barred  // this rank will never know: the call must not begin, see barred()
  };
  Passage pass(std::uint32_t number);
  Error barred() const;
  // Of the call whose number was taken last. A call that goes on while others are issued keeps it.
  const std::shared_ptr<const EpochParameters>& parameters() const { return current_; }

  // --- by the control thread ---

  // Whether no change is open, nor a committed one before its first call.
  bool is_idle() const;
  std::uint32_t next() const { return next_.load(std::memory_order_relaxed); }
  // The number of the call that this rank does not begin before it hears how the change ends: the
  // next one and about `margin` more. Nothing: it cannot promise one, since it has not come to the
  // last change yet, or calls too fast.
  std::optional<std::uint32_t> promise(std::uint32_t margin, EpochParameters proposed);
  // For promised changes. `first`: from which call it holds, no earlier than the promised one.
  void commit(std::uint32_t version, std::uint32_t first);
  void cancel(std::uint32_t version);
  // What the others do is unknown, for this reason.
  void bar(std::uint32_t version, const Error& why);

  // --- statistics, by any thread ---

  struct Counts {
    std::uint64_t promised = 0;
    std::uint64_t refused = 0;
    std::uint64_t committed = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t waited = 0;  // calls that came before the news did
  };
  Counts counts() const;

 private:
  enum class State { idle, open, committed, barred };
  std::optional<std::uint32_t> stop_after(std::uint32_t margin);
  bool is_open(std::uint32_t version) const;
  void become_idle();

  const std::atomic<std::uint32_t>& next_;
  // The promised call, then the first one of the change; 0: there is no change.
  std::atomic<std::uint32_t> stop_{0};
  std::shared_ptr<const EpochParameters> current_ = std::make_shared<const EpochParameters>();

  mutable std::mutex mutex_;  // for all below
  State state_ = State::idle;
  std::shared_ptr<const EpochParameters> proposed_;
  Error why_barred_;
  bool waits_ = false;  // a call does, and has been counted
  Counts counts_;
};

}  // namespace pith
