#include "completer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pith_torch {

namespace {

using std::chrono::microseconds;

constexpr microseconds shortest_pause{50};
constexpr microseconds longest_pause{2000};
// After the last call in the background the thread still wakes by itself for this long, so that a
// program with many such calls need not wake it each time.
constexpr std::chrono::milliseconds linger{50};

}  // namespace

Completer::~Completer() { stop(); }

void Completer::add(WorkPtr work) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(work));
    if (!thread_.joinable() && !stop_) thread_ = std::thread([this] { run(); });
    wake = std::exchange(sleeps_long_, false);
  }
  if (wake) wake_.notify_one();
}

void Completer::hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurried_ = true;
    sleeps_long_ = false;
  }
  wake_.notify_one();
}

std::vector<WorkPtr> Completer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  return std::exchange(works_, {});
}

bool Completer::only_messages() const {
  return std::all_of(works_.begin(), works_.end(),
                     [](const WorkPtr& work) { return work->is_message(); });
}

void Completer::take_new(std::unique_lock<std::mutex>& lock) {
  const auto is_needed = [this] { return stop_ || hurried_; };
  if (works_.empty() && added_.empty()) {
    const auto is_called = [&] { return is_needed() || !added_.empty(); };
    if (!wake_.wait_for(lock, linger, is_called)) {
      sleeps_long_ = true;
      wake_.wait(lock, is_called);
    }
    sleeps_long_ = false;
    pause_ = longest_pause / 2;
  }
  if (stop_) {
    lock.unlock();
    std::this_thread::sleep_for(pause_);
    lock.lock();
  } else {
    wake_.wait_for(lock, pause_, is_needed);
  }
  if (std::exchange(hurried_, false)) pause_ = shortest_pause;
  works_.insert(works_.end(), std::make_move_iterator(added_.begin()),
                std::make_move_iterator(added_.end()));
  added_.clear();
}

bool Completer::look_once() {
  bool moved = false;
  for (const WorkPtr& work : works_) {
    work->expire_if_late();
    if (work->has_ended() || !work->claim()) continue;
    moved |= work->poll();
    work->release();
  }
  std::erase_if(works_, [](const WorkPtr& work) { return work->has_ended(); });
  return moved;
}

// Driving the call is faster than looking at it now and then. Not while there are messages: the
// call may depend on them.
void Completer::wait_for_oldest() {
  const auto is_message = [](const WorkPtr& work) { return work->is_message(); };
  if (works_.empty() || std::any_of(works_.begin(), works_.end(), is_message)) return;
  WorkPtr& oldest = works_.front();
  if (!oldest->is_urgent() || !oldest->claim()) return;
  oldest->wait_claimed(Clock::now() + longest_pause);
  oldest->release();
  pause_ = microseconds(0);
}

void Completer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    take_new(lock);
    const bool last = stop_ && added_.empty();
    lock.unlock();
    if (look_once()) {
      pause_ = shortest_pause;
    } else {
      pause_ = std::clamp(pause_ * 2, shortest_pause, longest_pause);
    }
    wait_for_oldest();
    if (last && only_messages()) return;
    if (last) pause_ = shortest_pause;
    lock.lock();
  }
}

}  // namespace pith_torch
