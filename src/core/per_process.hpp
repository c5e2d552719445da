// What a process has one of, with threads inside. A forked child has none of its parent's threads,
// so it gets one of its own and leaves the parent's alone.
//
// At the end of the process it is stopped, by T::stop() where there is that, but never destroyed:
// globals that were made earlier are destroyed later, and may hold what still calls it.
#pragma once

#include <atomic>

namespace pith {

// Grows in the child of every fork.
unsigned fork_generation();

template <class T>
class PerProcess {
 public:
  // Made at first use.
  static T& get() {
    const unsigned generation = fork_generation();
    T* value = find(generation);
    return value ? *value : make(generation);
  }

 private:
  struct AtExit {
    ~AtExit() { stop(); }
  };
  // Held by a generation: what a parent's thread held when it forked is free in the child.
  struct Making {
    explicit Making(unsigned generation) {
      for (unsigned holder = 0; !maker_.compare_exchange_strong(holder, generation);) {
        if (holder != generation) continue;
        maker_.wait(holder);
        holder = 0;
      }
    }
    ~Making() {
      maker_.store(0);
      maker_.notify_all();
    }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;
  };

  static void stop() {
    if constexpr (requires(T & value) { value.stop(); }) {
      if (T* value = find(fork_generation())) value->stop();
    }
  }

  // The generation is written last and read first: who sees it sees its value.
  static T* find(unsigned generation) {
    const bool ours = generation_.load(std::memory_order_acquire) == generation;
    return ours ? value_.load(std::memory_order_relaxed) : nullptr;
  }
  static T& make(unsigned generation) {
    static AtExit at_exit;
    static_cast<void>(at_exit);
    const Making making(generation);
    if (T* value = find(generation)) return *value;
    T* value = new T;
    value_.store(value, std::memory_order_relaxed);
    generation_.store(generation, std::memory_order_release);
    return *value;
  }

  static inline constinit std::atomic<T*> value_{nullptr};
  static inline constinit std::atomic<unsigned> generation_{0};
  static inline constinit std::atomic<unsigned> maker_{0};
};

}  // namespace pith
