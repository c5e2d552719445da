#include "control/control_thread.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"

namespace pith {

namespace {

constexpr int look_ms = 100;

}  // namespace

ControlThread& ControlThread::instance() { return PerProcess<ControlThread>::get(); }

ControlThread::ControlThread()
    : wake_descriptor_(open_with_room([] { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); })) {}

void ControlThread::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    thread.swap(thread_);
  }
  wake();
  if (thread.joinable()) thread.join();
}

bool ControlThread::stopped() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void ControlThread::add(Controlled& controlled) {
  const std::lock_guard lock(mutex_);
  // First, so that a failure leaves the list as it was.
  try {
    if (!stop_ && !thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), "a thread cannot be started");
  }
  all_.push_back(&controlled);
  wake();
}

void ControlThread::remove(const Controlled& controlled) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(all_, &controlled);
  }
  const std::lock_guard turning(turning_);
}

void ControlThread::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_descriptor_, &one, sizeof one);
}

void ControlThread::run() {
  std::vector<Controlled*> all;
  std::vector<pollfd> waits;
  while (true) {
    {
      const std::lock_guard turning(turning_);
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
        all = all_;
      }
      for (Controlled* one : all) one->turn(monotonic_ns());
      waits.assign(1, {wake_descriptor_, POLLIN, 0});
      for (Controlled* one : all) {
        if (one->descriptor() >= 0) waits.push_back({one->descriptor(), POLLIN, 0});
      }
    }
    poll(waits.data(), waits.size(), look_ms);
    std::uint64_t drained = 0;
    [[maybe_unused]] const auto got = read(wake_descriptor_, &drained, sizeof drained);
  }
}

}  // namespace pith
