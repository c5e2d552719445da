// A singleton per process, for objects that own threads or locks. A forked child has none of its
// parent's threads, so it makes its own object and leaves the inherited one alone.
//
// At exit the object is stopped by T::stop(), if that exists, but never destroyed: globals that
// were made earlier are destroyed later and may still call it.
#pragma once

#include <atomic>

namespace pith {

namespace detail {
extern std::atomic<unsigned> fork_generation;
}  // namespace detail

// Incremented in the child of every fork.
inline unsigned fork_generation() {
  return detail::fork_generation.load(std::memory_order_relaxed);
}

template <class T>
class PerProcess {
 public:
  // Thread-safe. Makes the object at first use.
  static T& get() {
    const unsigned generation = fork_generation();
    T* value = find(generation);
    return value ? *value : make(generation);
  }

 private:
  struct AtExit {
    ~AtExit() { stop(); }
  };
  // A lock whose holder is a generation: if the parent held it while it forked, the child may take
  // it.
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

  struct Object {
    explicit Object(Object* inherited) : before(inherited) {}
    T value;
    Object* before;  // the parent's, which would seem lost to leak checkers otherwise
  };

  static void stop() {
    if constexpr (requires(T & value) { value.stop(); }) {
      if (T* value = find(fork_generation())) value->stop();
    }
  }

  // The generation is written after the value and read before it: a reader that sees the generation
  // sees its value.
  static T* find(unsigned generation) {
    const bool ours = generation_.load(std::memory_order_acquire) == generation;
    return ours ? &object_.load(std::memory_order_relaxed)->value : nullptr;
  }
  static T& make(unsigned generation) {
    static AtExit at_exit;
    static_cast<void>(at_exit);
    const Making making(generation);
    if (T* value = find(generation)) return *value;
    auto* const object = new Object(object_.load(std::memory_order_relaxed));
    object_.store(object, std::memory_order_relaxed);
    generation_.store(generation, std::memory_order_release);
    return object->value;
  }

  static inline constinit std::atomic<Object*> object_{nullptr};
  static inline constinit std::atomic<unsigned> generation_{0};
  static inline constinit std::atomic<unsigned> maker_{0};
};

}  // namespace pith
