// The thread behind a stream.
#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

std::shared_ptr<Queue> Queue::start() {
  auto queue = std::make_shared<Queue>();
  std::thread([queue] { queue->loop(); }).detach();
  return queue;
}

void Queue::push(Operation operation) {
  std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
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

void Queue::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return closed_ || !operations_.empty(); });
    if (operations_.empty()) return;
    Operation operation = std::move(operations_.front());
    operations_.pop_front();
    lock.unlock();
    operation();
    operation = nullptr;  // what it owns goes before the operation counts as done
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
