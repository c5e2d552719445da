// One engine per local rank: the ready queue, the sources it polls, and the token that says which
// thread drives it. A blocking caller drives its own engine, for the lowest latency. The process's
// progress thread drives engines with background work that no other thread drives.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/frame_arena.hpp"
#include "core/mailbox.hpp"
#include "core/pollable.hpp"
#include "core/scheduler.hpp"

namespace pith {

// Posted from any thread and run once by the thread that drives the engine. The poster owns it.
struct Work {
  void (*run)(Work& self) = nullptr;
  void* context = nullptr;  // the poster's
  Work* next = nullptr;
};

class Engine {
 public:
  // peers: the number of peers of the sources.
  explicit Engine(int peers);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Scheduler& scheduler() { return scheduler_; }
  FrameArena& arena() { return arena_; }
  Mailbox& mailbox() { return mailbox_; }

  // To be called before any work. The source must outlive the engine's last use.
  void add(Pollable& source) { sources_.push_back(&source); }
  // More ranks than cores: spinning would keep the awaited peer off the core.
  void set_oversubscribed(bool value) { oversubscribed_ = value; }
  bool is_oversubscribed() const { return oversubscribed_; }

  // Any thread; never waits for the thread that drives the engine.
  void post(Work& work);

  // The token. All functions need it unless documented otherwise.
  bool try_own() { return !owned_.exchange(true, std::memory_order_acquire); }
  void own();
  void disown() { owned_.store(false, std::memory_order_release); }

  // One turn: posted work, ready coroutines, sources. True if there was anything to do.
  bool progress();
  // Ends all calls: a source or posted work has run out of memory, or who waits was interrupted.
  // The engine goes on afterwards. If empty, std::bad_alloc leaves progress().
  enum class EndedBy : std::uint8_t { no_memory, interrupt };
  std::function<void(EndedBy)> end_calls;
  // Frees the reserve, so that there is memory to report that memory is exhausted.
  void open_reserve() { reserve_.reset(); }
  // One turn that polls every source, for callers that make turns rarely.
  bool progress_all() {
    all_sources_ = true;
    return progress();
  }

  // Drives until `done()`, which is evaluated with the token held. Keeps the token at the end.
  // Precondition: the token is held.
  template <class Done>
  void drive_until(Done done) {
    for (unsigned idle = 0; !done();) {
      idle = progress() ? 0 : idle + 1;
      if (idle || contenders_.load(std::memory_order_relaxed) > 0) rest(idle);
    }
  }

  // Lets the progress thread drive the engine while calls run in the background. Fails if the
  // thread cannot be started; to be called before anything begins that needs it.
  Error join_background();
  // Count the calls in the background; the thread sleeps while there are none. Precondition:
  // join_background() has succeeded.
  void background_begins();
  void background_ends() { background_.fetch_sub(1, std::memory_order_release); }
  // Takes the engine from the progress thread. Precondition: the token is not held.
  void leave_background();
  // Counts the turns that made progress. Posted work does not count: the stall check, which reads
  // this, posts some. Any thread.
  std::uint32_t moves() const { return moves_.load(std::memory_order_relaxed); }
  bool has_background() const { return background_.load(std::memory_order_acquire) > 0; }

  // Waits, the longer the more idle turns have passed. Releases the token meanwhile if another
  // thread wants it. Precondition: the token is held; it is held again on return.
  void rest(unsigned idle_turns);
  // Of more ranks than cores: lets another rank have the core. False: not now, since another thread
  // wants the token, or another program has the core, so that a wait had better nap.
  bool pass_core();

 private:
  friend class ProgressThread;
  bool run_posted();  // true if there was any
  template <class Run>
  bool with_memory(const Run& run);
  void rest_alone(unsigned idle_turns);
  void rest_oversubscribed(unsigned idle_turns);
  void nap();
  void wake();

  Scheduler scheduler_;
  FrameArena arena_;
  Mailbox mailbox_;
  std::vector<Pollable*> sources_;
  std::uint32_t turn_ = 0;
  bool all_sources_ = false;  // polls all of them in the next turn
  bool oversubscribed_ = false;
  unsigned naps_left_ = 0;  // since another process was found on this core
  std::uint64_t spin_end_ = 0;
  bool spun_ = false;        // this wait has spun for spin_ns
  bool registered_ = false;  // with the progress thread
  const int wake_descriptor_;
  std::unique_ptr<std::byte[]> reserve_;

  alignas(64) std::atomic<bool> owned_{false};
  std::atomic<int> contenders_{0};
  std::atomic<bool> napping_{false};
  std::atomic<Work*> posted_{nullptr};
  std::atomic<int> background_{0};
  std::atomic<std::uint32_t> moves_{0};
};

}  // namespace pith
