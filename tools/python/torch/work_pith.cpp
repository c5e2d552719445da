#include "work_pith.hpp"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <utility>

namespace pith_torch {

namespace {

std::vector<c10::Device> devices_of(const std::vector<std::vector<at::Tensor>>& outputs) {
  std::vector<c10::Device> devices;
  for (const auto& list : outputs) {
    for (const at::Tensor& tensor : list) {
      if (tensor.is_cuda() && devices.empty()) devices.push_back(tensor.device());
    }
  }
  return devices;
}

// As Gloo's backend: one list of tensors, or a list of lists if there are several.
c10::IValue value_of(const std::vector<std::vector<at::Tensor>>& outputs) {
  if (outputs.empty()) return c10::IValue(std::vector<at::Tensor>());
  if (outputs.size() > 1) return c10::IValue(outputs);
  return c10::IValue(outputs[0]);
}

std::optional<std::vector<at::Tensor>> profiled(const CallFacts& facts) {
  if (facts.inputs.empty() || !at::hasCallbacks()) return std::nullopt;
  return facts.inputs;
}

}  // namespace

// Without a title, which only profilers see, Work makes no record of the call: that takes as long
// as all else here.
PithWork::PithWork(int rank, CallFacts facts)
    : Work(rank, facts.op, at::hasCallbacks() ? facts.title : nullptr, profiled(facts)),
      facts_(std::move(facts)) {}

PithWork::~PithWork() = default;

void PithWork::begin(std::unique_ptr<Pending> pending, std::function<void()> hurry) {
  pending_ = std::move(pending);
  is_message_ = pending_->is_message();
  late_ = pending_->late();
  expiry_ = pending_->expiry();
  hurry_ = std::move(hurry);
}

void PithWork::settle(c10::ivalue::Future& future, const std::exception_ptr& failure) {
  if (failure) {
    future.setError(failure);
  } else {
    future.markCompleted(value_of(facts_.outputs));
  }
}

std::exception_ptr PithWork::failure() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

void PithWork::conclude(std::exception_ptr failure) {
  if (pending_) {
    source_ = pending_->source();
    pending_.reset();
  }
  finish(failure);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(future_mutex_);
    ended_.store(true, std::memory_order_release);
    future = future_;
  }
  if (future) settle(*future, failure);
}

void PithWork::release() {
  claimed_.store(false, std::memory_order_release);
  cv_.notify_all();
}

bool PithWork::poll() {
  if (has_ended()) return true;
  try {
    if (!pending_->poll()) return false;
    conclude();
  } catch (...) {
    conclude(std::current_exception());
  }
  return true;
}

bool PithWork::wait_claimed(Deadline deadline) {
  if (has_ended()) return true;
  try {
    if (!pending_->wait(deadline)) return false;
    conclude();
  } catch (...) {
    conclude(std::current_exception());
  }
  return true;
}

bool PithWork::isCompleted() {
  if (has_ended()) return true;
  if (claim()) {
    poll();
    release();
  }
  return has_ended();
}

// Either drives the call itself, or waits for the thread that does.
bool PithWork::wait_until(Deadline deadline) {
  constexpr auto look_again = std::chrono::milliseconds(20);
  while (!has_ended()) {
    if (claim()) {
      wait_claimed(deadline);
      release();
      if (!has_ended()) return false;
      continue;
    }
    auto until = Clock::now() + look_again;
    if (deadline && *deadline < until) until = *deadline;
    std::unique_lock lock(mutex_);
    cv_.wait_until(lock, until, [this] { return completed_ || !claimed_.load(); });
    if (deadline && !completed_ && Clock::now() >= *deadline) return false;
  }
  return true;
}

bool PithWork::wait(std::chrono::milliseconds timeout) {
  if (!has_ended()) {
    Deadline deadline;
    if (timeout > std::chrono::milliseconds(0)) deadline = Clock::now() + timeout;
    if (!wait_until(deadline)) fail_late(timeout);
  }
  if (std::exception_ptr thrown = failure()) std::rethrow_exception(thrown);
  return true;
}

bool WorksPending::poll() {
  for (const WorkPtr& work : works_) {
    if (!work->isCompleted()) return false;
  }
  return wait({});
}

bool WorksPending::wait(Deadline deadline) {
  for (const WorkPtr& work : works_) {
    if (!work->wait_until(deadline)) return false;
  }
  for (const WorkPtr& work : works_) {
    if (std::exception_ptr failure = work->failure()) std::rethrow_exception(failure);
  }
  return true;
}

void PithWork::fail_late(std::chrono::milliseconds timeout) const {
  C10_THROW_ERROR(DistBackendError,
                  c10::str(facts_.title, " of rank ", rank_, " has not ended within ",
                           timeout.count(), " ms (call ", facts_.sequence, " of its group)"));
}

std::vector<at::Tensor> PithWork::result() {
  TORCH_CHECK(has_ended(),
              "Work needs to be completed before calling result(). Should call "
              "wait() before result().");
  TORCH_CHECK(facts_.outputs.size() <= 1,
              "work result does not support list of lists, use "
              ".getFuture() and value()");
  return facts_.outputs.empty() ? std::vector<at::Tensor>() : facts_.outputs[0];
}

void PithWork::abort() {
  TORCH_CHECK(false, "pith cannot abort a single call: abort the process group instead");
}

c10::intrusive_ptr<c10::ivalue::Future> PithWork::getFuture() {
  const bool first = !urgent_.exchange(true);
  bool ended = false;
  {
    const std::lock_guard lock(future_mutex_);
    if (future_) return future_;
    const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        facts_.outputs.size() > 1 ? c10::ListType::create(tensors) : tensors,
        devices_of(facts_.outputs));
    ended = ended_.load();
  }
  if (ended) {
    settle(*future_, failure());
  } else if (first && hurry_) {
    hurry_();
  }
  return future_;
}

}  // namespace pith_torch
