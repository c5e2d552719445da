#include "comm/request.hpp"

#include <mutex>
#include <utility>

#include "core/per_process.hpp"

namespace pith {

namespace {

// Requests that are not in use. Different threads may take and return a request, even at the very
// end of the process. A forked child has a pool of its own, since the parent's may be locked.
class Pool {
 public:
  pithRequest* take() {
    const std::lock_guard lock(mutex_);
    return first_ ? std::exchange(first_, first_->next) : nullptr;
  }
  void give(pithRequest& request) {
    const std::lock_guard lock(mutex_);
    request.next = std::exchange(first_, &request);
  }

 private:
  std::mutex mutex_;
  pithRequest* first_ = nullptr;
};

}  // namespace

void MessageBatch::clear() {
  communicator.reset();
  messages.clear();
}

void CompressedBatch::clear() {
  communicator.reset();
  tensors.clear();
  compressors.clear();
}

// Releasing a communicator may take a while and use groups of its own, so it runs outside the lock.
void GiveBack::operator()(pithRequest* request) const noexcept {
  request->calls.clear();
  request->engines.clear();
  request->group.reset();
  request->blocks.clear();
  request->messages.clear();
  request->compressed.clear();
  request->communicators.clear();
  try {
    PerProcess<Pool>::get().give(*request);
  } catch (...) {  // a forked child has no pool yet, and no memory for one
    delete request;
  }
}

Request take_request() {
  pithRequest* kept = PerProcess<Pool>::get().take();
  Request request(kept ? kept : new pithRequest);
  request->process = fork_generation();
  return request;
}

}  // namespace pith
