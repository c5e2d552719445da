#include "comm/background.hpp"

#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "core/run_together.hpp"

namespace pith {

struct Background::Job {
  ~Job() {
    if (thread.joinable()) thread.join();
  }

  Error error;
  std::atomic<bool> done{false};
  std::thread thread;
};

Background::Background() noexcept = default;

Background::Background(std::function<Error()> job) : job_(std::make_unique<Job>()) {
  auto run = [state = job_.get(), job = std::move(job)] {
    state->error = without_throwing(job);
    state->done.store(true, std::memory_order_release);
  };
  try {
    job_->thread = std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), "a thread cannot be started");
  }
}

Background::Background(Request calls) noexcept : calls_(std::move(calls)) {}

Background::~Background() {
  if (calls_ && !calls_->group->done()) {
    drive_engines(calls_->engines, [this] { return calls_->group->done(); });
  }
}

Background::Background(Background&& other) noexcept = default;

Background& Background::operator=(Background&& other) noexcept {
  Background last(std::move(other));
  job_.swap(last.job_);
  calls_.swap(last.calls_);
  return *this;
}

bool Background::done() const {
  return calls_ ? calls_->group->done() : job_->done.load(std::memory_order_acquire);
}

Error Background::error() const { return calls_ ? calls_->group->error() : job_->error; }

}  // namespace pith
