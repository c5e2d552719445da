#include "comm/call_runner.hpp"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "core/clock.hpp"
#include "core/float_mode.hpp"
#include "core/log.hpp"
#include "core/waiting.hpp"

namespace pith {

namespace {

// Only compressed calls have gradients: a call that fails keeps them.
template <class Args>
void keep_gradients(Compute&, std::uint32_t, const Args&) {}
void keep_gradients(Compute& host, std::uint32_t number, const CompressedArgs& args) {
  absorb_gradients(host, number, args.tensors);
}

template <class Args>
void undo(Compute&, std::uint32_t, const Args&) {}
void undo(Compute& host, std::uint32_t number, const CompressedArgs& args) {
  take_back(host, number, args.tensors);
}

// The other ranks must learn that this rank ran out of memory. A compressed call has already told
// them, since it keeps its gradients first.
template <class Args>
Error told_to_all(const Call& call, const Args&, const Error& error) {
  return error ? call.fail(error) : error;
}
Error told_to_all(const Call&, const CompressedArgs&, const Error& error) { return error; }

// Only dense calls are learnt from.
template <class Args>
void begin_timing(const ChoiceLearning&, CallTiming&, Args&) {}
void begin_timing(const ChoiceLearning& learning, CallTiming& timing, CollectiveArgs& args) {
  learning.begin(timing, args);
}

template <class Args>
void end_timing(ChoiceLearning&, const CallTiming&, const Args&) {}
void end_timing(ChoiceLearning& learning, const CallTiming& timing, const CollectiveArgs& args) {
  learning.end(timing, args);
}

}  // namespace

CallRunner::CallRunner(Links& links, CallsUnderWay& calls, CallRecorder& recorder,
                       RevocationState& revocation)
    : links_(links),
      calls_(calls),
      revocation_(revocation),
      planner_(links.model()),
      learning_(links.model(), links.rank()),
      numbers_(
          static_cast<std::size_t>(links.size()),
          [this](std::uint32_t number) { wait_for_epoch(number); }, planner_),
      tasks_(links),
      journal_(links, recorder) {}

// Moves the call's data.
template <class Args>
Error CallRunner::make(Call& call, const Args& args) {
  Engine& engine = links_.engine();
  if constexpr (!std::is_same_v<Args, CompressedArgs>) {
    if (Error result; tasks_.make_at_once(call, args, engine, result)) return result;
  }
  Task<Error> task = tasks_.start(call, args);
  if (!task) return out_of_memory();
  task.handle().resume();
  engine.drive_until([&] { return task.done(); });
  return task.take();
}

// Runs a blocking call from its number to its end. Only one thread at a time issues calls, so the
// counters that it alone writes need no locked operation. A thread that drains the communicator may
// be another one; it may destroy the communicator after the last store here.
template <class Args>
Error CallRunner::run_to_end(Args& args) {
  const std::uint32_t call_number = numbers_.take_for(args);
  CallTiming timing;
  begin_timing(learning_, timing, args);
  Engine& engine = links_.engine();
  const CommState& state = links_.state();
  const FloatMode mode;
  calls_.blocking.store(true, std::memory_order_relaxed);
  engine.own();
  Error result = revocation_.refuses_calls();
  if (result) {
    keep_gradients(links_.compute(), call_number, args);
  } else {
    calls_.inside = true;
    RunningCall running;
    begin(running, call_number, args, links_.context());
    result = make(*running.call, args);
    result = told_to_all(*running.call, args, result);
    end(running, is_over(result));
    calls_.inside = false;
    const bool alone = call_number != 0 && calls_.active.load(std::memory_order_relaxed) == 0;
    if (!result && alone) {
      result = revocation_.dispute().check_left_over(call_number);
      if (result) undo(links_.compute(), call_number, args);
    }
  }
  if (result && state.revoked) result = state.revoked;
  Settling& settling = revocation_.settling();
  settling.look();
  const bool waits = result && settling.peers_may_touch();
  engine.disown();
  if (waits) settling.wait();
  if (!result) end_timing(learning_, timing, args);
  calls_.blocking.store(false, std::memory_order_release);
  return result;
}
template Error CallRunner::run_to_end(CollectiveArgs& args);
template Error CallRunner::run_to_end(CompressedArgs& args);
template Error CallRunner::run_to_end(PairArgs& args);

// Calls that were issued before may need this thread to get on.
void CallRunner::wait_for_epoch(std::uint32_t number) {
  const FloatMode mode;
  Engine& engine = links_.engine();
  EpochGate& gate = numbers_.gate();
  const std::uint64_t since_ns = monotonic_ns();
  EpochGate::Passage passage = gate.pass(number);
  if (passage == EpochGate::Passage::open) return;
  for (unsigned idle = 0; passage == EpochGate::Passage::waits && !revocation_.is_revoked();) {
    ++idle;
    if (engine.try_own()) {
      if (engine.progress()) idle = 0;
      engine.disown();
    }
    pause(idle);
    if (is_interrupted()) end_calls_now();
    passage = gate.pass(number);
  }
  if (passage == EpochGate::Passage::barred) return refuse_from_now_on(gate.barred());
  log(LogLevel::info, fmt::format("rank {} waited {:.3f} ms before call {} for news of its "
                                  "parameters; {} calls have so far",
                                  links_.rank(), double(monotonic_ns() - since_ns) / 1e6, number,
                                  gate.counts().waited));
}

// By an interrupt.
void CallRunner::end_calls_now() {
  Engine& engine = links_.engine();
  engine.own();
  if (engine.end_calls) engine.end_calls(Engine::EndedBy::interrupt);
  engine.disown();
}

void CallRunner::refuse_from_now_on(const Error& error) {
  links_.engine().own();
  revocation_.revoke(error);
  links_.engine().disown();
}

Error CallRunner::run_alone(const CollectiveArgs& args) {
  if (args.recv.data != args.send.data && args.send.size > 0) {
    std::memmove(args.recv.data, args.send.data, args.send.size);
  }
  return revocation_.error();
}

void CallRunner::begin(RunningCall& running, std::uint32_t number, const CallArgs& args,
                       const CallContext& context) {
  std::visit([&](const auto& kind) { begin(running, number, kind, context); }, args);
}

Error CallRunner::conclude(const RunningCall& running, const CallArgs& args,
                           const Error& error) const {
  return std::visit([&](const auto& kind) { return told_to_all(*running.call, kind, error); },
                    args);
}

void CallRunner::refuse(std::uint32_t number, const CallArgs& args) {
  std::visit([&](const auto& kind) { keep_gradients(links_.compute(), number, kind); }, args);
}

}  // namespace pith
