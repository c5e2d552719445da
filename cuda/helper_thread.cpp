#include "cuda/helper_thread.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace pith::cuda {

namespace {

class HelperThread {
 public:
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    if (!started_) std::thread([this] { loop(); }).detach();
    started_ = true;
    added_.notify_one();
  }

 private:
  void loop() {
    while (true) {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> work_;
  bool started_ = false;
};

}  // namespace

void run_on_helper_thread(std::function<void()> work) {
  // Never destroyed: the thread outlives main().
  static auto* const helper = new HelperThread;
  helper->add(std::move(work));
}

}  // namespace pith::cuda
