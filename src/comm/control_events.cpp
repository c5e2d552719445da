#include "comm/control_events.hpp"

#include "core/clock.hpp"

namespace pith {

ControlEvents::ControlEvents(Links& links, CallRecorder& recorder, RevocationState& revocation,
                             const PairWindows& windows, EpochGate& gate)
    : recorder_(recorder), revocation_(revocation), gate_(gate), watch_(links, recorder, windows) {
  recorder_.tell_time(monotonic_ns());
}

std::optional<Stall> ControlEvents::look(std::uint64_t now_ns) {
  recorder_.tell_time(now_ns);
  const bool revoked = revocation_.is_revoked();
  revocation_.look(now_ns);
  return revoked ? std::nullopt : watch_.look(now_ns);
}

}  // namespace pith
