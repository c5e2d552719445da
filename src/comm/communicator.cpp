#include "comm/communicator.hpp"

#include <sched.h>

#include <algorithm>

#include "comm/process_end.hpp"
#include "core/clock.hpp"
#include "core/float_mode.hpp"
#include "core/waiting.hpp"
#include "streams/stream_memory.hpp"
#include "streams/streams.hpp"

namespace pith {

namespace {

// Time for what a call still does after it has ended for its caller.
constexpr std::uint64_t moment_ns = 100'000'000;

}  // namespace

Communicator::Communicator(const Settings& settings, CommIdentity who, TransportTable table)
    : who_(std::move(who)),
      record_paths_{settings.trace, settings.explain.log, settings.links.kept},
      links_(settings, who_.rank, who_.size(), table),
      revocation_(links_, under_way_, recorder_, who_),
      runner_(links_, under_way_, recorder_, revocation_),
      background_(links_, runner_, revocation_),
      control_events_(links_, recorder_, revocation_, runner_.tasks().windows(),
                      runner_.numbers().gate(), runner_.learning()),
      compressors_(*this, links_, revocation_),
      children_(*this, settings),
      streams_(std::make_unique<Streams>(StreamHost{runner_, links_, revocation_, compressors_},
                                         StreamOptions(settings))) {
  look_for_device_memory();  // calls without a stream ask where their memory is
}

Communicator::~Communicator() {
  ProcessEnd::instance().remove(*this);
  drain();
  // After a failure others may be waited for in vain.
  const std::uint64_t patience_ns = error() ? goodbye_ns / 4 : goodbye_ns;
  close(Error(Code::remote, "the communicator was destroyed"), monotonic_ns() + patience_ns);
}

void Communicator::join_control_plane(bool process_end) {
  runner_.planner().begin();
  runner_.learning().begin();
  who_.control->plane().add(who_.key, who_.members, control_events_);
  if (process_end) ProcessEnd::instance().add(*this);
}

Error Communicator::async_error() {
  if (Error revoked = error()) return revoked;
  return under_way_.any() ? Error() : revocation_.first_death();
}

namespace {

void interrupt(std::span<Engine* const> engines) {
  for (Engine* engine : engines) {
    engine->own();
    if (engine->end_calls) engine->end_calls(Engine::EndedBy::interrupt);
    engine->disown();
  }
}

}  // namespace

void Communicator::drain() {
  const FloatMode mode;
  unsigned idle = 0;
  while (under_way_.any()) {
    if (!engine().try_own()) {
      sched_yield();
      continue;
    }
    if (links_.state().revoked) streams_->abandon();
    idle = engine().progress() ? 0 : idle + 1;
    engine().disown();
    if (idle) pause(idle);  // without the token: the call's own thread may be waiting for it
    if (idle && is_interrupted()) {
      Engine* const own = &engine();
      interrupt({&own, 1});
    }
  }
  if (streams_->unsettled()) revocation_.settling().wait();
}

// A thread that waits for a stream sees a call end before it has ended here, and at the end of the
// process no other thread drives the engine.
bool Communicator::ends_soon(std::uint64_t until_ns) {
  while (under_way_.any()) {
    if (monotonic_ns() > until_ns) return false;
    revocation_.drive_if_idle();
    sched_yield();
  }
  return true;
}

bool Communicator::leave() {
  if (!ends_soon(monotonic_ns() + moment_ns)) return false;
  engine().own();
  const bool idle = !under_way_.any() && !streams_->may_be_replayed();
  // From now on calls are refused that a group has collected or another thread is about to begin.
  if (idle) revocation_.leave();
  engine().disown();
  return idle;
}

bool Communicator::leave_with_process(std::uint64_t deadline_ns) {
  if (!ends_soon(std::min(deadline_ns, monotonic_ns() + moment_ns))) return false;
  const FloatMode mode;
  close(Error(Code::invalid_usage, "this process is ending, and has left the communicator"),
        deadline_ns);
  return true;
}

void Communicator::close(const Error& why, std::uint64_t deadline_ns) {
  if (std::exchange(closed_, true)) return;
  revocation_.close(deadline_ns, why);
  runner_.learning().end();
}

void drive_engines(std::span<Engine* const> engines, const std::function<bool()>& done) {
  const FloatMode mode;
  if (engines.size() == 1) {
    engines[0]->own();
    engines[0]->drive_until(done);
    engines[0]->disown();
    return;
  }
  for (unsigned idle = 0; !done();) {
    bool moved = false;
    for (Engine* engine : engines) {
      if (!engine->try_own()) continue;
      moved |= engine->progress();
      engine->disown();
    }
    idle = moved ? 0 : idle + 1;
    if (idle) pause(idle);
    if (idle && is_interrupted()) interrupt(engines);
  }
}

}  // namespace pith
