#include "core/progress_thread.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "core/engine.hpp"
#include "core/float_mode.hpp"
#include "core/waiting.hpp"

namespace pith {

ProgressThread& ProgressThread::instance() { return PerProcess<ProgressThread>::get(); }

void ProgressThread::stop() {
  std::thread thread;
  {
    removing_.fetch_add(1);
    const std::lock_guard lock(mutex_);
    removing_.fetch_sub(1);
    stop_ = true;
    thread.swap(thread_);
  }
  signal();
  if (thread.joinable()) thread.join();
}

void ProgressThread::signal() {
  signal_.fetch_add(1, std::memory_order_release);
  signal_.notify_one();
}

void ProgressThread::enlist(Engine& engine) {
  removing_.fetch_add(1);
  const std::lock_guard lock(mutex_);
  removing_.fetch_sub(1);
  if (!stop_ && !thread_.joinable()) thread_ = std::thread([this] { run(); });
  engines_.push_back(&engine);
}

void ProgressThread::remove(Engine& engine) {
  removing_.fetch_add(1);
  const std::lock_guard lock(mutex_);
  removing_.fetch_sub(1);
  std::erase(engines_, &engine);
}

bool ProgressThread::turn(unsigned& idle) {
  const std::lock_guard lock(mutex_);
  bool moved = false;
  int active = 0;
  Engine* held = nullptr;
  for (Engine* engine : engines_) {
    if (!engine->has_background()) continue;
    ++active;
    if (!engine->try_own()) continue;
    moved |= engine->progress();
    if (held) held->disown();
    held = engine;
  }
  idle = moved ? 0 : idle + 1;
  // rest() sleeps on the descriptors of one engine only; with several engines the thread pauses
  // instead, so that none waits for another's.
  if (active == 0) return false;
  if (idle && active == 1 && held) {
    held->rest(idle);
  } else if (!held) {
    // Blocking callers drive all active engines: check again soon, without taking their cores.
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (held) held->disown();
  if (idle && active > 1 && held) pause(idle);  // without a token: callers may wait for it
  return true;
}

void ProgressThread::run() {
  const FloatMode mode;
  unsigned idle = 0;
  while (true) {
    // Before all that a signal tells of is looked at.
    const std::uint32_t seen = signal_.load(std::memory_order_acquire);
    if (stop_) return;
    if (!turn(idle)) signal_.wait(seen, std::memory_order_acquire);
    while (removing_.load(std::memory_order_relaxed) > 0) sched_yield();
  }
}

}  // namespace pith
