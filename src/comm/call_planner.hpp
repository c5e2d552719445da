// Plans a communicator's dense calls: which algorithm makes each and how, and whether it is timed.
// Every rank counts the calls of each collective and size, and tries rivals of what is chosen at
// the same counts as the others, so all plan alike without a message. Used by the thread that
// issues the calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "collectives/algorithm.hpp"
#include "collectives/told_run.hpp"
#include "model/call_time.hpp"
#include "model/choices.hpp"
#include "model/model.hpp"

namespace pith {

class CallPlanner {
 public:
  explicit CallPlanner(const Model& model) : model_(model) {}
  CallPlanner(const CallPlanner&) = delete;
  CallPlanner& operator=(const CallPlanner&) = delete;

  // Before the first call, once the model knows the ranks.
  void begin();
  // From the next call on these hold, which all ranks have agreed on: Choices::save(). What is no
  // such text changes nothing, on any rank.
  void adopt(std::string_view saved);

  // Not for calls that a graph replays, which have no number: the model alone chooses for them, and
  // for what carries the parcels of coded calls. With uneven blocks a call is made like one with
  // equal ones, and nothing is learnt from it.
  void plan(CollectiveArgs& args) {
    if (!learned_ || args.wire.is_used()) return;
    if (args.uneven.used()) return learned_->plan_uneven(args);
    learned_->plan(args, model_);
  }

  // By any thread.
  CallPlan chosen(Collective collective, std::size_t bytes) const;

 private:
  // What a communicator that learns has.
  struct Learned {
    // Of a collective and size.
    struct Seat {
      std::uint32_t count = 0;        // of its calls
      std::uint32_t since = 0;        // the count when its choice was agreed on
      std::uint32_t usual_until = 0;  // until this count all are made like this
      WhoseTime whose = WhoseTime::nobodys;
      bool is_always_timed = false;
      CallRun kind;  // see call_time.hpp
      CallPlan usual;
      // What the model has chosen for so many bytes by these parameters. Rules have borders inside
      // a size class.
      std::size_t bytes = no_bytes;
      std::uint32_t epoch = 0;
      const Algorithm* by_model = nullptr;
      ToldRun run;  // used by the calls while they run, under the engine's token
    };
    std::mutex mutex;  // for other threads, while `choices` changes
    Choices start;
    Choices choices;
    std::array<std::array<Seat, SizeClass::count>, collective_count> seats{};

    void adopt(Collective collective, SizeClass size, const Choices& wanted);
    void plan(CollectiveArgs& args, const Model& model);
    void plan_uneven(CollectiveArgs& args) const;
    static CallPlan turn_in(Seat& seat, const Choices::Cell& cell, std::uint32_t count);
  };

  const Model& model_;
  std::unique_ptr<Learned> learned_;  // null: the model alone chooses
};

}  // namespace pith
