#include "api/background.hpp"

#include "api/group.hpp"

namespace pith::api {

Error without_throwing(const std::function<Error()>& job) {
  try {
    return job();
  } catch (const std::bad_alloc&) {
    return {Code::system, "out of memory"};
  } catch (const std::exception& exception) {
    return {Code::internal, exception.what()};
  }
}

Background::Background(std::function<Error()> job)
    : thread_([this, job = std::move(job)] {
        error_ = without_throwing(job);
        done_.store(true, std::memory_order_release);
      }) {}

Background::Background(std::unique_ptr<pithRequest> calls) : calls_(std::move(calls)) {}

Background::~Background() {
  if (thread_.joinable()) thread_.join();
  if (calls_ && !calls_->group->done()) {
    drive_engines(calls_->engines, [this] { return calls_->group->done(); });
  }
}

bool Background::done() const {
  return calls_ ? calls_->group->done() : done_.load(std::memory_order_acquire);
}

Error Background::error() const { return calls_ ? calls_->group->error() : error_; }

}  // namespace pith::api
