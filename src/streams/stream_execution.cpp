#include "streams/stream_execution.hpp"

#include <utility>

namespace pith {

StreamExecution::StreamExecution(const StreamHost& host, StreamDevice& device,
                                 cuda::StreamGate& gate, StreamOrder& order,
                                 CapturedCalls& captured, StreamCallPool& pool)
    : host_(host),
      device_(device),
      gate_(gate),
      order_(order),
      captured_(captured),
      pool_(pool),
      undecided_(host.links.state(), [](StreamCall& call) { call.owner.decide(call); }),
      unsettled_(host.revocation.settling(), [](StreamCall& call) { call.owner.open(call); }) {}

void StreamExecution::poll_with(Engine& engine) {
  engine.add(unsettled_);
  engine.add(undecided_);
}

// Calls are numbered only now: a refused call must not put this rank out of step with the others.
void StreamExecution::admit(StreamCall& call, cuda::CUstream stream) {
  if (call.captured) {
    device_.let_go(call.looks);  // a graph's addresses may be other memory at a replay
    captured_.add(call);
  } else {
    call.number = host_.runner.numbers().take_for(call.args);
    CallsUnderWay& calls = host_.runner.under_way();
    calls.active.fetch_add(1, std::memory_order_relaxed);
    calls.not_begun.fetch_add(1, std::memory_order_relaxed);
    host_.links.engine().background_begins();
    order_.add(call, cuda::identity_of(stream));
  }
  gate_.publish(call);
}

void StreamExecution::reach(StreamCall& call) {
  if (call.captured || order_.reach(call)) begin(call);
}

// The calls of a revoked communicator are not decided: start() ends them.
void StreamExecution::decide(StreamCall& call) {
  LateChoice& choice = *std::exchange(call.choice, nullptr);
  if (host_.links.state().revoked) return start(call);
  CompressedTensor tensor;
  if (choice.candidate()) tensor = *choice.candidate();
  if (std::shared_ptr<Compressor> compressor = choice.take()) {
    tensor.device = call.on_device ? &device_.compute() : nullptr;
    Tuning tuning = host_.links.model().tuning();
    // As it was when the number was taken.
    if (const auto* dense = std::get_if<CollectiveArgs>(&call.args)) {
      tuning.epoch = dense->tuning.epoch;
    }
    call.keep(CompressedArgs{std::span(&tensor, 1), tuning});
    std::vector claimed{std::move(compressor)};
    call.held = HeldCompressors(std::move(claimed));
  }
  start(call);
}

void StreamExecution::start(StreamCall& call) {
  host_.revocation.revoke_if_any_died();
  CallsUnderWay& calls = host_.runner.under_way();
  if (!call.captured) calls.not_begun.fetch_sub(1, std::memory_order_relaxed);
  if (call.captured) calls.active.fetch_add(1, std::memory_order_relaxed);
  if (host_.links.state().revoked && !call.compressed) {
    let_go(call);
    cuda::StreamGate::open(call);
    end(call);
    return;
  }
  host_.runner.begin(call.running, call.number, call.args,
                     call.on_device ? device_.context() : host_.links.context());
  if (call.on_device) device_.compute().enter(call);
  call.task = run(call);
  call.task.handle().resume();
}

Task<Error> StreamExecution::run(StreamCall& call) {
  cuda::CudaCompute& compute = device_.compute();
  Task<Error> task = host_.runner.tasks().start(*call.running.call, call.args);
  Error error = out_of_memory();
  if (task) error = co_await std::move(task);
  error = host_.runner.conclude(call.running, call.args, error);
  std::optional<Call>& running = call.running.call;
  call.unsettled = error && host_.revocation.settling().peers_may_touch();
  if (call.unsettled && call.on_device) {
    co_await running->until(compute.run<CopyKernel>({nullptr, nullptr, 0}));
  } else if (call.on_device) {
    // The stream goes on after the last kernel, without waking the host first. Even a failed call
    // waits for its kernels, because they use the caller's memory.
    const Fence last = call.compressed ? compute.run<CopyKernel>({nullptr, nullptr, 0})
                                       : compute.open_after_all(call);
    co_await running->until(last);
    if (compute.error()) error = running->fail(compute.error());
  }
  let_go(call);
  const bool opens = !call.on_device || call.compressed || compute.error();
  // The call waits for this, because its slot is reused as soon as it has ended.
  if (opens && !call.unsettled) co_await running->until(compute.open(call));
  // The frame still runs; the engine's next turn destroys it.
  call.Work::run = [](Work& self) {
    auto& ended = static_cast<StreamCall&>(self);
    ended.owner.end(ended);
  };
  host_.links.engine().post(call);
  co_return error;
}

void StreamExecution::end(StreamCall& call) {
  call.task = Task<Error>();
  if (call.running.call) host_.runner.end(call.running, !host_.links.state().revoked);
  call.captured ? CapturedCalls::count_replay(call) : order_.remove(call);
  if (call.unsettled) {
    unsettled_.add(call);
  } else {
    release(call);
  }
  order_.begin_held();  // before `active` drops: calls that end at once are not the last
  host_.runner.under_way().active.fetch_sub(1, std::memory_order_release);
  host_.revocation.settling().look();
}

void StreamExecution::open(StreamCall& call) {
  device_.compute().wait(device_.compute().open(call));
  release(call);
}

void StreamExecution::release(StreamCall& call) {
  call.unsettled = false;
  gate_.close(call);
  if (!call.captured) give_back(call);
}

void StreamExecution::let_go(StreamCall& call) {
  call.held.let_go();
  device_.let_go(call.looks);
}

// Precondition: the call has ended.
void StreamExecution::give_back(StreamCall& call) {
  pool_.give_back(call);
  host_.links.engine().background_ends();
}

void StreamExecution::forget(StreamCall& call) {
  captured_.remove(call);
  pool_.give_back(call);
}

void StreamExecution::abandon() {
  order_.begin_held();
  gate_.abandon([](cuda::StreamEntry& self) {
    auto& call = static_cast<StreamCall&>(self);
    call.owner.drop(call);
  });
}

void StreamExecution::drop(StreamCall& call) {
  let_go(call);  // before the stream goes on
  cuda::StreamGate::open(call);
  gate_.close(call);
  order_.remove(call);
  give_back(call);
  CallsUnderWay& calls = host_.runner.under_way();
  calls.not_begun.fetch_sub(1, std::memory_order_relaxed);
  calls.active.fetch_sub(1, std::memory_order_release);
}

}  // namespace pith
