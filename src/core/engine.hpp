// One engine per local rank: the ready queue, the sources it polls, and the token that says which
// thread drives it. A blocking caller drives its own engine (lowest latency); work posted in the
// background is driven by the process's progress thread whenever nobody else does.
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

// Posted from any thread, run once by whoever drives the engine. The poster keeps it alive.
struct Work {
  void (*run)(Work& self) = nullptr;
  void* context = nullptr;  // the poster's
  Work* next = nullptr;
};

class Engine {
 public:
  // peers: how many peers the sources may name.
  explicit Engine(int peers);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Scheduler& scheduler() { return scheduler_; }
  FrameArena& arena() { return arena_; }
  Mailbox& mailbox() { return mailbox_; }

  // Before any work; sources must outlive the engine's last use.
  void add(Pollable& source) { sources_.push_back(&source); }
  // More ranks than cores: spinning would keep the peer we wait for off its core.
  void set_oversubscribed(bool value) { oversubscribed_ = value; }

  // Never waits for whoever drives the engine. Any thread.
  void post(Work& work);

  // The token. Everything that is not documented otherwise needs it.
  bool try_own() { return !owned_.exchange(true, std::memory_order_acquire); }
  void own();
  void disown() { owned_.store(false, std::memory_order_release); }

  // One turn: posted work, ready coroutines, sources. True when there was anything to do.
  bool progress();
  // Called by progress() where a source or posted work had no memory; both go on afterwards.
  // Without it std::bad_alloc leaves progress().
  std::function<void()> on_no_memory;
  // Gives back what is kept for those who tell of a lack of memory.
  void open_reserve() { reserve_.reset(); }
  // One turn that leaves no source out, for who looks once in a while.
  bool progress_all() {
    all_sources_ = true;
    return progress();
  }

  // Drives until `done()`, which is only evaluated while holding the token; keeps it at the end.
  // Precondition: the token is held.
  template <class Done>
  void drive_until(Done done) {
    for (unsigned idle = 0; !done();) {
      idle = progress() ? 0 : idle + 1;
      if (idle || contenders_.load(std::memory_order_relaxed) > 0) rest(idle);
    }
  }

  // From now on the progress thread drives the engine while calls run in the background here. Error
  // where it cannot be started: before anything has begun that would need it.
  Error join_background();
  // A call that runs in the background; the thread sleeps while there are none. Precondition:
  // join_background() has succeeded.
  void background_begins();
  void background_ends() { background_.fetch_sub(1, std::memory_order_release); }
  // The progress thread will not drive this engine any more. Precondition: the token is not held.
  void leave_background();
  // Grows whenever anything has moved here; work that was posted alone does not count, for those
  // who look whether calls get on post some. Any thread.
  std::uint32_t moves() const { return moves_.load(std::memory_order_relaxed); }
  bool has_background() const { return background_.load(std::memory_order_acquire) > 0; }

  // Waits a little, the longer the more idle turns have passed; lets go of the token meanwhile
  // where others want it. Precondition: the token is held; it is held again on return.
  void rest(unsigned idle_turns);

 private:
  friend class ProgressThread;
  bool run_posted();  // whether there was any
  template <class Run>
  bool with_memory(const Run& run);
  void rest_alone(unsigned idle_turns);
  void rest_in_crowd(unsigned idle_turns);
  void nap();
  void wake();

  Scheduler scheduler_;
  FrameArena arena_;
  Mailbox mailbox_;
  std::vector<Pollable*> sources_;
  std::uint32_t turn_ = 0;
  bool all_sources_ = false;  // polls all of them in the next turn
  bool oversubscribed_ = false;
  unsigned naps_left_ = 0;  // since strangers were found on this core
  std::uint64_t spin_end_ = 0;
  bool spun_ = false;        // enough in this wait
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
