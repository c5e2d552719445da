#include "api/background.hpp"

#include <system_error>

#include "api/group.hpp"

namespace pith::api {

Background::Background(std::function<Error()> job) {
  auto run = [this, job = std::move(job)] {
    error_ = without_throwing(job);
    done_.store(true, std::memory_order_release);
  };
  try {
    thread_ = std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), "a thread cannot be started");
  }
}

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
