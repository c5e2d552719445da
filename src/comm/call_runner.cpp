#include "comm/call_runner.hpp"

#include <cstring>
#include <new>

#include "collectives/premultiply.hpp"
#include "core/float_mode.hpp"

namespace pith {

namespace {

// A dense collective of nothing needs nobody, but for a barrier.
bool moves_nothing(const CollectiveArgs& args) {
  return args.count == 0 && args.collective != Collective::barrier;
}

Task<Error> do_nothing(Call&) { co_return Error(); }

// What is peculiar to the compressed of all kinds: a call that fails keeps its gradients.
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

// Memory that runs out here is news to the other ranks. A compressed call has told them, for it has
// gradients to keep first.
template <class Args>
Error told_to_all(const Call& call, const Args&, const Error& error) {
  return error ? call.fail(error) : error;
}
Error told_to_all(const Call&, const CompressedArgs&, const Error& error) { return error; }

}  // namespace

CallRunner::CallRunner(Links& links, CallsUnderWay& calls, CallRecorder& recorder,
                       RevocationState& revocation)
    : links_(links),
      calls_(calls),
      recorder_(recorder),
      revocation_(revocation),
      pairs_(static_cast<std::size_t>(links.size())),
      windows_(static_cast<std::size_t>(links.size())) {}

// A blocking call from its number to its end. One thread at a time issues calls, so the counters
// that only it writes need no locked operation; who drains the communicator may come from another
// one, and lets go of it after the last store here.
template <class Args>
Error CallRunner::run_to_end(Args& args) {
  const std::uint32_t call_number = number(args);
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
    result = out_of_memory();
    Task<Error> task = start(running, args);
    if (task) {
      task.handle().resume();
      engine.drive_until([&] { return task.done(); });
      result = task.take();
    }
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
  calls_.blocking.store(false, std::memory_order_release);
  return result;
}
template Error CallRunner::run_to_end(CollectiveArgs& args);
template Error CallRunner::run_to_end(CompressedArgs& args);
template Error CallRunner::run_to_end(PairArgs& args);

Error CallRunner::run_alone(const CollectiveArgs& args) {
  if (args.recv.data != args.send.data && args.send.size > 0) {
    std::memmove(args.recv.data, args.send.data, args.send.size);
  }
  return revocation_.error();
}

// Calls in the background are recorded by whoever drives the engine.
std::uint32_t CallRunner::begin_split() {
  const CollectiveArgs args{.collective = Collective::split};
  const std::uint32_t number = take_number();
  links_.engine().own();
  recorder_.begin(number, digest_of(args), args);
  links_.engine().disown();
  return number;
}

void CallRunner::end_split(std::uint32_t number, bool well) {
  links_.engine().own();
  recorder_.end(number, well);
  links_.engine().disown();
}

// --- the steps ---------------------------------------------------------------------------------

void CallRunner::complete(CollectiveArgs& args) const {
  const std::size_t bytes = args.count * size_of(args.type);
  const Extent extent = extent_of(args.collective, links_.size());
  args.send.size = bytes * extent.send;
  args.recv.size = bytes * extent.recv;
  args.tuning = links_.tuning();
}

void CallRunner::record(RunningCall&, std::uint32_t number, std::uint64_t digest,
                        const CollectiveArgs& args) {
  recorder_.begin(number, digest, args);
  if (CallTrace* const trace = links_.trace()) {
    trace->begin(number, args, algorithm_of(args).name);
  }
}

void CallRunner::record(RunningCall&, std::uint32_t number, std::uint64_t digest,
                        const CompressedArgs& args) {
  recorder_.begin(number, digest, args.tensors);
  if (CallTrace* const trace = links_.trace()) trace->begin(number, args);
}

void CallRunner::record(RunningCall& running, std::uint32_t number, std::uint64_t,
                        const PairArgs& args) {
  running.messages = recorder_.begin(args.messages);
  if (CallTrace* const trace = links_.trace()) trace->begin(number, args);
}

Task<Error> CallRunner::task_of(Call& call, const CollectiveArgs& args) {
  if (moves_nothing(args)) return do_nothing(call);
  CollectiveArgs placed = args;
  placed.root = links_.order().place_of(args.root);
  scale_average(placed, links_.size());
  const Algorithm& algorithm = algorithm_of(args);
  if (placed.factor.used) return run_premultiplied(call, placed, algorithm);
  return algorithm.run(call, placed);
}

Task<Error> CallRunner::task_of(Call& call, const CompressedArgs& args) {
  return allreduce_compressed(call, args.tensors, args.tuning);
}

Task<Error> CallRunner::task_of(Call& call, const PairArgs& args) {
  return exchange_messages(call, args.messages, windows_, args.chunk_bytes);
}

template <class Args>
Task<Error> CallRunner::start(RunningCall& running, const Args& args) {
  try {
    return task_of(*running.call, args);
  } catch (const std::bad_alloc&) {
    return {};
  }
}
template Task<Error> CallRunner::start(RunningCall& running, const CallArgs& args);

void CallRunner::end(RunningCall& running, bool well) {
  const std::uint32_t number = running.call->number();
  if (running.messages.count != 0) {
    recorder_.end(running.messages, well);
  } else {
    recorder_.end(number, well);
  }
  if (CallTrace* const trace = links_.trace()) trace->end(number, well);
  running.call.reset();
}

// --- of any kind -------------------------------------------------------------------------------

void CallRunner::complete(CallArgs& args) const {
  std::visit([this](auto& kind) { complete(kind); }, args);
}

std::uint32_t CallRunner::number(CallArgs& args) {
  return std::visit([this](auto& kind) { return number(kind); }, args);
}

void CallRunner::begin(RunningCall& running, std::uint32_t number, const CallArgs& args,
                       const CallContext& context) {
  std::visit([&](const auto& kind) { begin(running, number, kind, context); }, args);
}

Task<Error> CallRunner::task_of(Call& call, const CallArgs& args) {
  return std::visit([&](const auto& kind) { return task_of(call, kind); }, args);
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
