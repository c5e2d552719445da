#include "comm/control_events.hpp"

#include "core/clock.hpp"
#include "core/run_together.hpp"

namespace pith {

ControlEvents::ControlEvents(Links& links, CallRecorder& recorder, RevocationState& revocation,
                             const PairWindows& windows, EpochGate& gate, ChoiceLearning& learning)
    : recorder_(recorder),
      revocation_(revocation),
      gate_(gate),
      learning_(learning),
      watch_(links, recorder, windows) {
  recorder_.tell_time(monotonic_ns());
}

std::optional<Stall> ControlEvents::look(std::uint64_t now_ns) {
  recorder_.tell_time(now_ns);
  // Without memory nothing is learnt for now.
  static_cast<void>(without_throwing([&] {
    learning_.learn();
    learning_.tell(now_ns);
    return Error();
  }));
  const bool revoked = revocation_.is_revoked();
  revocation_.look(now_ns);
  return revoked ? std::nullopt : watch_.look(now_ns);
}

}  // namespace pith
