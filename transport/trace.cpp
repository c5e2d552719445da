#include "transport/trace.hpp"

#include <algorithm>

namespace pith {

namespace {

Step step_of(Step::Op op, int peer, const Tag& tag) {
  Step step;
  step.op = op;
  step.peer = peer;
  step.call = tag.call;
  step.lane = tag.lane;
  step.step = tag.step;
  return step;
}

}  // namespace

void Trace::begins(const Send& send) {
  const auto found = recorders_.find(send.comm);
  if (found == recorders_.end()) return;
  Step step = step_of(Step::Op::send, send.peer, send.header.tag());
  step.bytes = send.header.length;
  const ConstBytes memory{send.data, send.header.length};
  Recorder& recorder = *found->second;
  open_[&send] = {&recorder, recorder.begin(step, memory, {&memory, 1}), false};
}

void Trace::begins(const Receive& receive) {
  const auto found = recorders_.find(receive.comm);
  if (found == recorders_.end()) return;
  const Step step = step_of(Step::Op::receive, receive.peer, receive.tag);
  Recorder& recorder = *found->second;
  open_[&receive] = {&recorder, recorder.begin(step, {receive.into, receive.room}, {}), true};
}

void Trace::ends(const Operation& operation) {
  const auto found = open_.find(&operation);
  if (found == open_.end()) return;
  const Open open = found->second;
  open_.erase(found);
  Step* step = open.recorder->find(open.id);
  if (step) step->failed = static_cast<bool>(operation.error);
  if (!open.receives || operation.error) return open.recorder->end(open.id, {});
  const auto& receive = static_cast<const Receive&>(operation);
  if (step) step->bytes = receive.length;
  const ConstBytes arrived{receive.borrow ? receive.lease.data() : receive.into, receive.length};
  open.recorder->end(open.id, {&arrived, 1});
}

std::byte* TracedCompute::take_scratch(std::size_t bytes) {
  std::byte* scratch = inner_.take_scratch(bytes);
  recorder_.name_buffer({scratch, bytes}, "scratch");
  return scratch;
}

std::uint64_t TracedCompute::kernel_behind(Fence fence) const {
  if (fence.ticket == 0) return 0;
  for (const Known& known : fences_) {
    if (known.ticket == fence.ticket) return known.id;
  }
  return 0;
}

Fence TracedCompute::submit(Implementation implementation, const void* args, std::size_t args_bytes,
                            std::size_t work_bytes, Fence after) {
  const KernelNote note = note_of(implementation, args);
  Step step;
  step.op = Step::Op::kernel;
  step.name = note.name;
  step.bytes = note.writes[0].size;
  step.waits[0] = kernel_behind(after);
  const std::uint64_t id = recorder_.begin(step, note.writes[0], note.reads);
  const Fence fence = submit_to(inner_, implementation, args, args_bytes, work_bytes, after);
  // Ended for the recorder even while the kernel runs: steps that read its result wait for it.
  recorder_.end(id, note.writes);
  if (inner_.reached(fence)) {
    kernel_ended(id);
  } else {
    if (Step* begun = recorder_.find(id)) begun->ended = false;
    watch(fence, id);
  }
  return fence;
}

void TracedCompute::watch(Fence fence, std::uint64_t id) {
  fences_[fence_count_++ % fences_.size()] = {fence.ticket, id};
  if (spare_pending_.empty()) {
    all_pending_.push_back(std::make_unique<Pending>());
    spare_pending_.push_back(all_pending_.back().get());
  }
  Pending& pending = *spare_pending_.back();
  spare_pending_.pop_back();
  pending.compute = this;
  pending.id = id;
  pending.FenceWait::fence = fence;
  pending.FenceWait::reached = [](FenceWait& wait) {
    auto& self = static_cast<Pending&>(wait);
    self.compute->kernel_ended(self.id);
    self.compute->spare_pending_.push_back(&self);
  };
  inner_.notify(pending);
}

void TracedCompute::kernel_ended(std::uint64_t id) {
  const std::uint64_t now = recorder_.now();
  if (Step* step = recorder_.find(id)) {
    step->begin_ns = std::min(std::max(step->begin_ns, last_end_ns_), now);
    step->end_ns = now;
    step->ended = true;
  }
  last_end_ns_ = now;
}

}  // namespace pith
