#include "core/engine.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "core/progress_thread.hpp"
#include "core/waiting.hpp"

namespace pith {

namespace {

// A wait spins first, then yields, then naps. The phases end by the clock, since a turn takes 10 ns
// over shared memory and a microsecond over sockets; short waits do not read the clock. Spinning
// lasts longer than any message between running ranks takes. On slower links the few microseconds
// of a wake-up do not matter, and a nap frees the core for computation.
constexpr unsigned short_spin_turns = 64;
constexpr std::uint64_t spin_ns = 40'000;
constexpr std::uint64_t yield_ns = 200'000;
// With more ranks than cores (oversubscribed): spin a few turns, because the peer may run on
// another core; then yield, because ranks on one core pass it on within a microsecond, while a nap
// costs two context switches and a wake-up; at last nap, because all ranks may be idle for long. A
// turn that asks the kernel takes as long as a yield (4 ranks over TCP, 8 bytes: 0.78 of the time
// with one such turn instead of 12).
constexpr unsigned oversubscribed_spin_turns = 12;
constexpr unsigned oversubscribed_yields = 64;
// A yield this long means that another program has the core: it keeps the core for its time slice,
// and a napping rank is woken sooner than a yielding one is scheduled. From then on an
// oversubscribed wait yields once, to see whether that program is gone, and naps; other waits nap
// only. That ends after `naps_after_time_slice` naps; short yields of an oversubscribed wait end it
// sooner.
constexpr std::uint64_t time_slice_ns = 1'000'000;
constexpr unsigned naps_after_time_slice = 64;
constexpr int nap_ms = 1;
// Enough to report that memory is exhausted. Its pages are not touched, so it costs address space
// only.
constexpr std::size_t reserve_bytes = std::size_t{64} << 10;
// Sources without waiting operations are polled once in slow_poll_mask + 1 turns.
constexpr std::uint32_t slow_poll_mask = 255;

// Yields. True if another process kept the core for a time slice.
bool yield_to_another_process() {
  const std::uint64_t start = monotonic_ns();
  sched_yield();
  return monotonic_ns() - start > time_slice_ns;
}

}  // namespace

Engine::Engine(int peers)
    : mailbox_(scheduler_, peers),
      wake_descriptor_(open_with_room([] { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); })),
      reserve_(std::make_unique_for_overwrite<std::byte[]>(reserve_bytes)) {
  out_of_memory();
}

Engine::~Engine() {
  leave_background();
  close(wake_descriptor_);
}

void Engine::post(Work& work) {
  Work* head = posted_.load(std::memory_order_relaxed);
  do {
    work.next = head;
  } while (!posted_.compare_exchange_weak(head, &work, std::memory_order_release,
                                          std::memory_order_relaxed));
  wake();
}

// Also returns true if memory was exhausted, so that the caller counts the turn as progress.
template <class Run>
bool Engine::with_memory(const Run& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    if (!end_calls) throw;
    end_calls(EndedBy::no_memory);
    return true;
  }
}

bool Engine::run_posted() {
  if (!posted_.load(std::memory_order_relaxed)) return false;
  Work* stack = posted_.exchange(nullptr, std::memory_order_acquire);
  Work* queue = nullptr;
  while (stack) {
    Work* next = stack->next;
    stack->next = queue;
    queue = stack;
    stack = next;
  }
  while (queue) {
    Work* work = queue;
    queue = queue->next;
    with_memory([work] {
      work->run(*work);
      return true;
    });
  }
  return true;
}

bool Engine::progress() {
  const bool ran = run_posted();
  bool moved = scheduler_.run_ready();
  const bool all = std::exchange(all_sources_, false) || (++turn_ & slow_poll_mask) == 0;
  for (Pollable* source : sources_) {
    if (all || source->busy()) moved |= with_memory([source] { return source->progress(); });
  }
  moved |= scheduler_.run_ready();
  if (all && !moved) moved = with_memory([this] { return mailbox_.dispute_mismatched(); });
  if (moved) moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return ran || moved;
}

void Engine::own() {
  if (try_own()) return;
  contenders_.fetch_add(1, std::memory_order_relaxed);
  wake();
  for (unsigned tries = 0; !try_own(); ++tries) {
    if (tries < 1000 && !oversubscribed_) {
      relax();
    } else {
      sched_yield();
    }
  }
  contenders_.fetch_sub(1, std::memory_order_relaxed);
}

void Engine::rest(unsigned idle_turns) {
  if (contenders_.load(std::memory_order_relaxed) > 0) {
    disown();
    sched_yield();
    own();
    return;
  }
  oversubscribed_ ? rest_oversubscribed(idle_turns) : rest_alone(idle_turns);
}

void Engine::rest_alone(unsigned idle_turns) {
  if (naps_left_ > 0) {
    if (idle_turns < oversubscribed_spin_turns) return relax();
    --naps_left_;
    return nap();
  }
  if (idle_turns <= short_spin_turns) {
    if (idle_turns == short_spin_turns) spin_end_ = monotonic_ns() + spin_ns;
    spun_ = false;
    return relax();
  }
  if (!spun_ && idle_turns % short_spin_turns != 0) return relax();
  const std::uint64_t now = monotonic_ns();
  spun_ = now >= spin_end_;
  if (!spun_) return relax();
  if (now >= spin_end_ + yield_ns) return nap();
  if (yield_to_another_process()) naps_left_ = naps_after_time_slice;
}

void Engine::rest_oversubscribed(unsigned idle_turns) {
  const bool asks_kernel = std::ranges::any_of(
      sources_, [](const Pollable* source) { return source->asks_kernel() && source->busy(); });
  const unsigned spin_turns = asks_kernel ? 1 : oversubscribed_spin_turns;
  if (idle_turns < spin_turns) return relax();
  if (idle_turns >= spin_turns + oversubscribed_yields) return nap();
  if (naps_left_ > 0 && idle_turns > spin_turns) {
    --naps_left_;
    return nap();
  }
  naps_left_ = yield_to_another_process() ? naps_after_time_slice : naps_left_ / 2;
}

bool Engine::pass_core() {
  if (naps_left_ > 0 || contenders_.load(std::memory_order_relaxed) > 0) return false;
  if (!yield_to_another_process()) return true;
  naps_left_ = naps_after_time_slice;
  return false;
}

void Engine::wake() {
  if (!napping_.load(std::memory_order_relaxed)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_descriptor_, &one, sizeof one);
}

// Sleeps on the descriptors of all sources. A wake-up lost between the last check and the sleep
// costs one nap, which is cheaper than a full memory fence on every send.
void Engine::nap() {
  if (Interrupt::of_this_thread().is_due()) {
    disown();
    const bool ends = is_interrupted();
    own();
    if (ends && end_calls) end_calls(EndedBy::interrupt);
  }
  constexpr std::size_t most = 16;
  napping_.store(true, std::memory_order_seq_cst);
  pollfd descriptors[most];
  nfds_t count = 0;
  descriptors[count++] = {wake_descriptor_, POLLIN, 0};
  std::size_t armed = 0;
  bool work = posted_.load(std::memory_order_relaxed) != nullptr;
  for (; armed < sources_.size() && !work; ++armed) {
    work = with_memory([source = sources_[armed]] { return !source->arm(); });
    const int descriptor = sources_[armed]->descriptor();
    if (descriptor >= 0 && count < most) descriptors[count++] = {descriptor, POLLIN, 0};
  }
  all_sources_ = work;  // the source that has work may be one without waiting operations
  if (!work) poll(descriptors, count, nap_ms);
  for (std::size_t i = 0; i < armed; ++i) {
    with_memory([source = sources_[i]] {
      source->disarm();
      return true;
    });
  }
  napping_.store(false, std::memory_order_relaxed);
  std::uint64_t drained = 0;
  if (descriptors[0].revents) {
    [[maybe_unused]] const auto got = read(wake_descriptor_, &drained, sizeof drained);
  }
}

void Engine::leave_background() {
  if (registered_) ProgressThread::instance().remove(*this);
  registered_ = false;
}

Error Engine::join_background() {
  if (registered_) return {};
  try {
    ProgressThread::instance().enlist(*this);
  } catch (const std::exception& exception) {
    return {Code::system,
            fmt::format("the progress thread cannot be started: {}", exception.what())};
  }
  registered_ = true;
  return {};
}

void Engine::background_begins() {
  background_.fetch_add(1, std::memory_order_release);
  ProgressThread::instance().signal();
}

}  // namespace pith
