// What a process has one of, with threads inside. A forked child has none of its parent's threads,
// so it gets one of its own and leaves the parent's alone.
#pragma once

#include <atomic>
#include <mutex>

namespace pith {

// Grows in the child of every fork.
unsigned fork_generation();

template <class T>
class PerProcess {
 public:
  // Made at first use.
  T& get() {
    T* value = value_.load(std::memory_order_acquire);
    return value && generation_.load(std::memory_order_relaxed) == fork_generation() ? *value
                                                                                     : make();
  }
  // At the end of the process that has made it.
  ~PerProcess() {
    if (generation_.load(std::memory_order_relaxed) == fork_generation()) delete value_.load();
  }

 private:
  T& make() {
    const std::lock_guard lock(mutex_);
    T* value = value_.load(std::memory_order_relaxed);
    if (value && generation_.load(std::memory_order_relaxed) == fork_generation()) return *value;
    value = new T;
    generation_.store(fork_generation(), std::memory_order_relaxed);
    value_.store(value, std::memory_order_release);
    return *value;
  }

  std::mutex mutex_;
  std::atomic<T*> value_{nullptr};
  std::atomic<unsigned> generation_{0};
};

}  // namespace pith
