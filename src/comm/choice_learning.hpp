// What rank 0 of a communicator learns from its calls: their times go from the thread that issues
// calls to the control thread, which learns from them and proposes choices to all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "control/epoch_gate.hpp"
#include "control/observers/observers.hpp"
#include "core/clock.hpp"
#include "model/call_time.hpp"
#include "model/choice_log.hpp"
#include "model/link_log.hpp"
#include "model/tuner.hpp"

namespace pith {

// Of a call that is timed, from its begin to its end.
struct CallTiming {
  std::uint64_t begun_ns = 0;  // 0: it is not timed
  SlowestTime slowest;         // if ranks tell it
};

class ChoiceLearning {
 public:
  ChoiceLearning(const Model& model, int rank) : model_(model), is_first_(rank == 0) {}
  ChoiceLearning(const ChoiceLearning&) = delete;
  ChoiceLearning& operator=(const ChoiceLearning&) = delete;

  // Before the first call, once the model knows the ranks. A program's first calls, which try the
  // rivals, may all be over before the control thread has its first turn.
  void begin();
  // Before begin(), at rank 0: choices and times go to this file.
  void keep_log(const std::string& path, int hosts) {
    log_ = std::make_unique<ChoiceLog>(path, model_, hosts);
  }

  // Before begin(), at rank 0: what is learnt of links goes to this file. `table`: what is known.
  void keep_links(const std::string& path, LinkTable table) {
    links_ = std::make_unique<LinkLog>(path, std::move(table));
  }

  // Before begin(), at rank 0: observers are shown choices and times. `hosts`: how many run ranks.
  void show_to(Observers* observers, int hosts) {
    observers_ = observers;
    hosts_ = hosts;
  }

  // --- by the thread that runs a call ---

  // Before the call runs. `timing` stays where it is until end().
  void begin(CallTiming& timing, CollectiveArgs& args) const {
    if (!wants_time_of(args)) return;
    timing.begun_ns = monotonic_ns();
    args.plan.slowest = &timing.slowest;
  }
  // After the call, if it went well. Times that the control thread is too slow to fetch are
  // dropped. Allocates nothing.
  void end(const CallTiming& timing, const CollectiveArgs& args) {
    if (timing.begun_ns != 0) add(args, timing, monotonic_ns());
  }

  // --- by the control thread ---

  // Learns from the calls of late. May throw where there is no memory.
  void learn();
  // Writes the files if that is due, and tells observers.
  void tell(std::uint64_t now_ns);
  // The parameters that should hold, if other ones do. Asked while no change is open or ahead in
  // the gate.
  std::optional<std::string> wanted(const EpochGate& gate);

  // When no call begins any more and the control thread has left.
  void end();

 private:
  bool wants_time_of(const CollectiveArgs& args) const {
    if (!is_first_ || args.uneven.used()) return false;
    return args.plan.is_timed ||
           (times_all() && whose_time(args.collective, model_.link()) == WhoseTime::everyones);
  }
  void add(const CollectiveArgs& args, const CallTiming& timing, std::uint64_t ended_ns);
  // For the files, where no choice follows from them.
  bool times_all() const { return (log_ || links_) && !model_.learns(); }
  bool keeps_times() const { return is_first_ && (model_.learns() || log_ || links_); }

  const Model& model_;
  const bool is_first_;
  std::mutex mutex_;
  std::uint64_t last_ended_ns_ = 0;
  std::vector<CallTime> times_;

  std::vector<CallTime> taken_;
  std::unique_ptr<Tuner> tuner_;  // made with the first time
  std::string holds_;             // the parameters
  std::string proposed_;
  std::unique_ptr<ChoiceLog> log_;
  std::unique_ptr<LinkLog> links_;
  Observers* observers_ = nullptr;  // null: none can come
  int hosts_ = 1;
  std::uint64_t shown_ns_ = 0;
  std::uint64_t committed_ = 0;  // of the gate's counts, when they were proposed
};

}  // namespace pith
