#include "comm/background_calls.hpp"

#include <new>

namespace pith {

namespace {

// The most calls that run at a time. Later calls wait, in the same order on every rank.
constexpr int most_running = 4;

// Point-to-point messages start at once: the message that they wait for may be queued behind any
// number of calls.
bool takes_turns(const BackgroundCall& call) { return call.number != 0; }

template <class Args>
void release(const Args&) {}
void release(const CompressedArgs& args) {
  for (const CompressedTensor& tensor : args.tensors) tensor.compressor->release();
}

}  // namespace

void CallGroup::keep(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
}

void CallGroup::finish_one(const Error& error) {
  if (error) keep(error);
  remaining_.fetch_sub(1, std::memory_order_release);
}

FrameArena& BackgroundCall::frame_arena() const { return owner->frame_arena(); }

void BackgroundCall::conclude(const Error& error) {
  std::visit([](const auto& kind) { release(kind); }, args);
  group.finish_one(error);
}

void BackgroundCalls::issue(BackgroundCall& call, bool driven) {
  call.owner = this;
  runner_.tasks().complete(call.args);
  const auto* const dense = std::get_if<CollectiveArgs>(&call.args);
  if (dense && runner_.is_alone(*dense)) {
    return call.group.finish_one(runner_.run_alone(*dense));
  }
  call.number = runner_.numbers().take_for(call.args);
  call.driven = driven;
  runner_.under_way().active.fetch_add(1, std::memory_order_relaxed);
  call.run = [](Work& self) {
    auto& posted = static_cast<BackgroundCall&>(self);
    posted.owner->enqueue(posted);
  };
  if (!driven) links_.engine().background_begins();
  links_.engine().post(call);
}

void BackgroundCalls::enqueue(BackgroundCall& call) {
  if (!takes_turns(call)) return begin(call);
  try {
    queued_.push_back(&call);
  } catch (const std::bad_alloc&) {
    ++running_;
    return end_without_memory(call);
  }
  start_queued();
}

void BackgroundCalls::end_without_memory(BackgroundCall& call) {
  revocation_.revoke(out_of_memory());
  end_unbegun(call);
}

// Its gradients are kept, as those of a refused call. Precondition: the communicator is revoked.
void BackgroundCalls::end_unbegun(BackgroundCall& call) {
  runner_.refuse(call.number, call.args);
  reap_soon(call);
}

void BackgroundCalls::start_queued() {
  while (running_ < most_running && !queued_.empty()) {
    BackgroundCall& call = *queued_.front();
    queued_.erase(queued_.begin());
    ++running_;
    begin(call);
  }
}

Task<Error> BackgroundCalls::run(BackgroundCall& call, CallRunner& runner) {
  Task<Error> task = runner.tasks().start(*call.running.call, call.args);
  Error error = out_of_memory();
  if (task) error = co_await std::move(task);
  error = runner.conclude(call.running, call.args, error);
  if (!error) call.owner->end_timing(call);
  call.owner->reap_soon(call);  // the frame still runs; the engine's next turn destroys it
  co_return error;
}

void BackgroundCalls::begin(BackgroundCall& call) {
  revocation_.revoke_if_any_died();
  if (links_.state().revoked) return end_unbegun(call);
  runner_.begin(call.running, call.number, call.args, links_.context());
  begin_timing(call);
  try {
    call.task = run(call, runner_);
  } catch (const std::bad_alloc&) {
    return end_without_memory(call);
  }
  call.task.handle().resume();
}

// No other call was issued since.
bool BackgroundCalls::is_alone(const BackgroundCall& call) const {
  return runner_.under_way().active.load(std::memory_order_relaxed) == 1 &&
         runner_.numbers().next() == next_number(call.number);
}

// Of calls that run side by side no time tells anything.
void BackgroundCalls::begin_timing(BackgroundCall& call) const {
  auto* const dense = std::get_if<CollectiveArgs>(&call.args);
  if (dense && is_alone(call)) runner_.learning().begin(call.timing, *dense);
}

void BackgroundCalls::end_timing(const BackgroundCall& call) {
  const auto* const dense = std::get_if<CollectiveArgs>(&call.args);
  if (dense && is_alone(call)) runner_.learning().end(call.timing, *dense);
}

void BackgroundCalls::reap_soon(BackgroundCall& call) {
  call.run = [](Work& self) {
    auto& ended = static_cast<BackgroundCall&>(self);
    ended.owner->reap(ended);
  };
  links_.engine().post(call);
}

void BackgroundCalls::reap(BackgroundCall& call) {
  Error error = call.task ? call.task.take() : out_of_memory();
  const CommState& state = links_.state();
  if (error && state.revoked) error = state.revoked;
  call.task = Task<Error>();
  if (call.running.call) runner_.end(call.running, runner_.is_over(error));
  if (takes_turns(call)) --running_;
  const bool driven = call.driven;
  start_queued();
  // A thread that drains the communicator may read the results once `active` is zero.
  runner_.under_way().active.fetch_sub(1, std::memory_order_release);
  revocation_.settling().look();
  if (!driven) links_.engine().background_ends();
  revocation_.settling().finish(call, error);  // the owner may free the call from here on
}

}  // namespace pith
