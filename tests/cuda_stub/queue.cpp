// The thread behind a stream.
#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

std::uint64_t HardwareQueue::take_turn() {
  std::lock_guard lock(mutex_);
  return given_++;
}

void HardwareQueue::await_turn(std::uint64_t turn) {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [&] { return next_ == turn; });
}

void HardwareQueue::pass() {
  std::lock_guard lock(mutex_);
  ++next_;
  passed_.notify_all();
}

std::shared_ptr<Queue> Queue::start(std::shared_ptr<HardwareQueue> hardware) {
  auto queue = std::make_shared<Queue>();
  queue->hardware_ = std::move(hardware);
  std::thread([queue] { queue->loop(); }).detach();
  return queue;
}

void Queue::push(Operation operation, bool holds) {
  std::lock_guard lock(mutex_);
  const std::uint64_t turn = hardware_ ? hardware_->take_turn() : 0;
  operations_.push_back({std::move(operation), turn, holds});
  ++pushed_;
  work_.notify_one();
}

std::uint64_t Queue::tail() {
  std::lock_guard lock(mutex_);
  return pushed_;
}

void Queue::wait(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return done_ >= ticket; });
}

bool Queue::idle() {
  std::lock_guard lock(mutex_);
  return done_ == pushed_;
}

void Queue::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  work_.notify_one();
}

void Queue::run(Given& given) {
  if (hardware_) hardware_->await_turn(given.turn);
  if (hardware_ && !given.holds) hardware_->pass();
  given.operation();
  given.operation = nullptr;  // what it owns goes before the operation counts as done
  if (hardware_ && given.holds) hardware_->pass();
}

void Queue::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return closed_ || !operations_.empty(); });
    if (operations_.empty()) return;
    Given given = std::move(operations_.front());
    operations_.pop_front();
    lock.unlock();
    run(given);
    lock.lock();
    ++done_;
    progress_.notify_all();
  }
}

void Record::finish() {
  std::lock_guard lock(mutex);
  done = true;
  time = Clock::now();
  changed.notify_all();
}

void Record::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

bool Record::finished() {
  std::lock_guard lock(mutex);
  return done;
}

}  // namespace pith::cuda
