// Receives the control plane's events of a communicator and answers its questions. Called by the
// control thread.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/call_watch.hpp"
#include "comm/choice_learning.hpp"
#include "comm/revocation/revocation_state.hpp"
#include "control/call_recorder.hpp"
#include "control/comm_watcher.hpp"
#include "control/epoch_gate.hpp"

namespace pith {

class ControlEvents final : public CommWatcher {
 public:
  ControlEvents(Links& links, CallRecorder& recorder, RevocationState& revocation,
                const PairWindows& windows, EpochGate& gate, ChoiceLearning& learning);

  void on_revoked(const Error& error) override { revocation_.hear(error); }
  void on_dead(const Error& error) override { revocation_.hear_of_death(error); }
  std::optional<CallNote> find_call(std::uint32_t number) override {
    return recorder_.find(number);
  }
  Error refusal_of(std::uint32_t number) override { return revocation_.refusal_of(number); }
  std::optional<Stall> look(std::uint64_t now_ns) override;
  void on_stalled(const Stall& stall) override { watch_.tell(stall); }
  EpochGate* epoch_gate() override { return &gate_; }
  std::optional<std::string> wanted_parameters() override { return learning_.wanted(gate_); }

 private:
  CallRecorder& recorder_;
  RevocationState& revocation_;
  EpochGate& gate_;
  ChoiceLearning& learning_;
  CallWatch watch_;
};

}  // namespace pith
