#include "communicator.hpp"

#include <utility>
#include <vector>

#include "request.hpp"
#include "waiting.hpp"

namespace pith::python {

Communicator::Communicator(pithComm_t handle) : handle_(handle) {
  python::check(pithCommUserRank(handle, &rank_));
  python::check(pithCommCount(handle, &size_));
}

Communicator::~Communicator() {
  if (ended_.exchange(true) || process_ != fork_generation()) return;
  const WithoutGil released;
  pithCommDestroy(handle_);
}

pithComm_t Communicator::handle() const {
  if (has_ended()) {
    raise(pithInvalidUsage,
          "the communicator has been finalized or aborted, expected one that is in use");
  }
  if (process_ != fork_generation()) {
    raise(pithInvalidUsage,
          "the communicator was made before this process was forked, expected one of its own");
  }
  return handle_;
}

nb::tuple Communicator::failed_after(const Outcome& outcome) const {
  if (outcome.result != pithRemoteError || has_ended()) return nb::tuple();
  return failed();
}

void Communicator::check(const Outcome& outcome) const {
  if (outcome.result == pithSuccess) return;
  raise(outcome.result, outcome.message, failed_after(outcome));
}

void Communicator::finalize() {
  if (has_ended()) return;
  const pithComm_t comm = handle();
  const Driving driving(*this);
  check(without_gil([comm] { return pithCommFinalize(comm); }));
  forget_ended_requests();
  if (ended_.exchange(true)) return;
  python::check(without_gil([comm] { return pithCommDestroy(comm); }));
}

void Communicator::abort() {
  if (process_ != fork_generation()) return;
  if (driver_.load() == std::this_thread::get_id()) {
    to_be_aborted_ = true;
    Wait::end_all();
    return;
  }
  if (ended_.exchange(true)) return;
  python::check(without_gil([this] { return pithCommAbort(handle_); }));
}

nb::tuple Communicator::failed() const {
  const pithComm_t comm = handle();
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  int count = size_;
  python::check(without_gil([&] { return pithCommGetFailed(comm, ranks.data(), &count); }));
  nb::list found;
  for (int i = 0; i < count; ++i) found.append(ranks[static_cast<std::size_t>(i)]);
  return nb::tuple(found);
}

Driving::Driving(Communicator& comm) : comm_(&comm) {
  std::thread::id nobody;
  const std::thread::id self = std::this_thread::get_id();
  if (comm.driver_.compare_exchange_strong(nobody, self, std::memory_order_acquire)) return;
  raise(pithInvalidUsage, nobody == self
                              ? "this thread is in a call of the communicator already"
                              : "another thread is in a call of the communicator, expected one "
                                "thread at a time; different communicators may be driven by "
                                "different threads");
}

Driving::~Driving() {
  if (!comm_) return;
  comm_->driver_.store(std::thread::id(), std::memory_order_release);
  if (!comm_->to_be_aborted_ || comm_->ended_.exchange(true)) return;
  const WithoutGil released;
  pithCommAbort(comm_->handle_);
}

}  // namespace pith::python
