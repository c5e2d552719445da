// Calls on streams whose turn has come while it is not known yet whether they run compressed
// (collectives/late_choice.hpp). Driver of the engine.
#pragma once

#include <vector>

#include "core/operation.hpp"
#include "core/pollable.hpp"
#include "streams/stream_call.hpp"

namespace pith {

class UndecidedCalls final : public Pollable {
 public:
  // `decide`: called for each call whose choice is known, or whose communicator is revoked.
  UndecidedCalls(const CommState& state, void (*decide)(StreamCall& call))
      : state_(state), decide_(decide) {}

  void add(StreamCall& call) { calls_.push_back(&call); }

  bool progress() override;
  bool busy() const override { return !calls_.empty(); }
  int descriptor() const override { return -1; }
  bool arm() override;
  void disarm() override {}

 private:
  bool can_start(const StreamCall& call) const;

  const CommState& state_;
  void (*const decide_)(StreamCall& call);
  std::vector<StreamCall*> calls_;
  std::vector<StreamCall*> looked_at_;  // scratch of progress()
};

}  // namespace pith
