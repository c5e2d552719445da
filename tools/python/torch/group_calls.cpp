#include "group_calls.hpp"

#include <c10/core/DeviceGuard.h>

#include <utility>

#include "dtypes.hpp"
#include "errors.hpp"

namespace pith_torch {

GroupCalls::GroupCalls(std::unique_ptr<Communicator> comm)
    : Backend(comm->rank(), comm->size()),
      comm_(std::move(comm)),
      completer_(std::make_shared<Completer>()) {}

WorkReturned GroupCalls::run(Call call, bool async) {
  call.facts.sequence = ++sequence_;
  const bool on_device = call.where.defined() && call.where.is_cuda();
  auto work = c10::make_intrusive<PithWork>(rank_, std::move(call.facts));
  const c10::AutoGradMode no_grad(false);
  try {
    if (on_device) {
      const c10::DeviceGuard device(call.where.device());
      run_here(call, stream_of(call.where), *work);
    } else if (async) {
      run_in_background(call, work);
    } else {
      run_here(call, nullptr, *work);
    }
  } catch (...) {
    work->conclude(std::current_exception());
  }
  return returned(work);
}

WorkPtr GroupCalls::returned(WorkPtr work) {
  if (!coalescing_) return work;
  const std::lock_guard lock(coalesced_mutex_);
  coalesced_.push_back(work);
  return work;
}

void GroupCalls::startCoalescing() {
  TORCH_CHECK(!coalescing_.exchange(true), "startCoalescing: calls are coalesced already");
}

WorkReturned GroupCalls::endCoalescing() {
  std::vector<WorkPtr> works;
  {
    const std::lock_guard lock(coalesced_mutex_);
    TORCH_CHECK(coalescing_.exchange(false), "endCoalescing without startCoalescing");
    works.swap(coalesced_);
  }
  return run_pending({c10d::OpType::COALESCED, "pith:coalesced", {}, {}},
                     std::make_unique<WorksPending>(std::move(works)));
}

WorkReturned GroupCalls::run_pending(CallFacts facts, std::unique_ptr<Pending> pending) {
  facts.sequence = sequence_;
  auto work = c10::make_intrusive<PithWork>(rank_, std::move(facts));
  work->begin(std::move(pending), [completer = completer_] { completer->hurry(); });
  if (!work->isCompleted()) completer_->add(work);
  return returned(work);
}

void GroupCalls::run_here(Call& call, pithStream_t stream, PithWork& work) {
  {
    const std::lock_guard lock(mutex_);
    if (call.grouped) {
      CallGroup group;
      call.issue(comm_->get(), stream);
      group.run();
    } else {
      call.issue(comm_->get(), stream);
    }
  }
  if (call.finish) call.finish();
  work.conclude();
}

void GroupCalls::run_in_background(Call& call, const WorkPtr& work) {
  pithRequest_t request = nullptr;
  {
    const std::lock_guard lock(mutex_);
    CallGroup group;
    call.issue(comm_->get(), nullptr);
    request = group.run_in_background();
  }
  // The whole call is kept: `issue` holds the memory from which the others still read.
  const auto kept = std::make_shared<Call>(std::move(call));
  const auto finish = [kept] {
    if (kept->finish) kept->finish();
  };
  work->begin(std::make_unique<RequestPending>(request, finish),
              [completer = completer_] { completer->hurry(); });
  completer_->add(work);
}

void GroupCalls::check_root(int64_t root, const char* what) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, what, ": the root is rank ", root,
                    ", expected 0 to ", size_ - 1);
}

}  // namespace pith_torch
