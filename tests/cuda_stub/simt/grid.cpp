#include "tests/cuda_stub/simt/grid.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "tests/cuda_stub/simt/fiber.hpp"
#include "tests/cuda_stub/simt/races.hpp"

namespace pith::simt {

namespace {

constexpr unsigned warp_lanes = 32;
constexpr unsigned all_lanes = 0xffffffffu;

class Grid;
struct Block;

enum class State { runs, at_barrier, in_warp_op, ended };

struct Thread {
  Thread() : fiber(live, this) {}
  static void live(void* of);
  unsigned lane() const { return index % warp_lanes; }

  Fiber fiber;
  Fences fences;
  Grid* grid = nullptr;
  Block* block = nullptr;
  unsigned index = 0;
  unsigned warp_ops = 0;
  State state = State::ended;
};

// Lanes are at most one operation apart, so that two of these serve a warp in turn.
struct WarpRound {
  WarpOp op = WarpOp::shuffle;
  unsigned arrived = 0;  // lanes
  std::uint64_t values[warp_lanes] = {};
  Token token;
};
using Warp = std::array<WarpRound, 2>;

// The barrier that a block's threads are coming to, and the last one.
struct Barrier {
  bool is_or = false;
  bool any = false;
  Token token;
};

// A place for a block, with threads that serve one block after another.
struct Block {
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Thread*> by_index;
  std::vector<Warp> warps;
  std::array<Barrier, 2> barriers;
  Token begin;
  unsigned passed = 0;   // barriers
  unsigned arrived = 0;  // threads at the next one
  unsigned ended = 0;
  unsigned index = 0;
  std::byte* shared = nullptr;
};

// Places wait here for the next launch. Those of a launch that was given up stay as they are.
class Places {
 public:
  std::unique_ptr<Block> take(unsigned threads) {
    std::unique_ptr<Block> block;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        block = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!block) block = std::make_unique<Block>();
    while (block->threads.size() < threads) block->threads.push_back(std::make_unique<Thread>());
    return block;
  }
  void give(std::unique_ptr<Block> block, bool usable) {
    const std::lock_guard lock(mutex_);
    (usable ? free_ : given_up_).push_back(std::move(block));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> free_, given_up_;
};

Places& places() {
  static auto* const all = [] {
    auto* const made = new Places;  // threads may outlive main()
    races_release(made);
    return made;
  }();
  races_acquire(all);  // of which ThreadSanitizer does not learn from code like this
  return *all;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint32_t below(std::size_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>((state_ >> 32) * limit >> 32);
  }

 private:
  std::uint64_t state_;
};

class Grid {
 public:
  explicit Grid(const Launch& launch) : launch_(launch), random_(launch.seed) {}
  ~Grid();
  std::string run();

  // By threads. A thread that fails never runs again.
  void fail(Thread& thread, const char* what);
  void wait(Thread& thread, State state);
  void wake(Thread& thread);
  void ends(Thread& thread);
  bool pass_barrier(Thread& thread, bool is_or, bool value);
  WarpRound& meet(Thread& thread, WarpOp op, unsigned mask, std::uint64_t value);
  void may_switch(Thread& thread);
  void may_be_late();
  void rest(Thread& thread);

  const Launch& launch() const { return launch_; }
  Words& words() { return words_; }
  void* ends_token() { return &end_; }

 private:
  void start_block(Block& block);
  void resume_one();
  void idle();
  void give_up();

  const Launch& launch_;
  Random random_;
  Words words_;
  Token end_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<std::byte[]>> shared_;
  std::vector<Thread*> ready_;
  unsigned begun_ = 0;
  unsigned running_ = 0;  // blocks
  unsigned rests_ = 0;    // since something has happened
  bool ended_by_others_ = false;
  char error_[200] = {};
};

thread_local Thread* running = nullptr;

// A fiber may meet a different thread's variable after it was suspended.
[[gnu::noinline]] Thread& self() {
  asm volatile("" ::: "memory");
  return *running;
}

void Thread::live(void* of) {
  auto& thread = *static_cast<Thread*>(of);
  for (;;) {
    Grid& grid = *thread.grid;
    races_acquire(&thread.block->begin);
    grid.launch().body(grid.launch().args, thread.block->shared);
    grid.ends(thread);
    races_release(grid.ends_token());
    thread.fiber.suspend();
  }
}

Grid::~Grid() {
  for (auto& block : blocks_) {
    const bool usable = block->ended == launch_.threads;
    places().give(std::move(block), usable);
  }
}

// No order between blocks comes of their taking turns at one place: what the scheduler knows of a
// block that has ended it learns when the launch ends.
void Grid::start_block(Block& block) {
  block.index = begun_++;
  block.passed = block.arrived = block.ended = 0;
  block.by_index.clear();
  block.warps.assign(launch_.threads / warp_lanes, Warp{});
  const std::size_t bytes = std::max<std::size_t>(launch_.shared_bytes, 1);
  shared_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  block.shared = shared_.back().get();
  std::memset(block.shared, 0xcd, bytes);  // as good as what a device finds
  races_release(&block.begin);
  const unsigned turn = random_.below(launch_.threads);
  for (unsigned i = 0; i < launch_.threads; ++i) {
    Thread& thread = *block.threads[(i + turn) % launch_.threads];
    thread.grid = this;
    thread.block = &block;
    thread.index = i;
    thread.warp_ops = 0;
    thread.state = State::runs;
    thread.fences.clear();
    block.by_index.push_back(&thread);
    ready_.push_back(&thread);
#ifdef PITH_SIMT_TSAN
    char name[64];
    std::snprintf(name, sizeof name, "%s block %u thread %u", launch_.name, block.index, i);
    thread.fiber.name(name);
#endif
  }
  ++running_;
}

std::string Grid::run() {
  const unsigned most = std::min(launch_.blocks, 1 + random_.below(5));
  while (blocks_.size() < most) blocks_.push_back(places().take(launch_.threads));
  for (const auto& block : blocks_) start_block(*block);
  while (running_ > 0 && error_[0] == 0 && !ended_by_others_) resume_one();
  give_up();
  races_acquire(&end_);
  if (error_[0] == 0) return {};
  char seed[64];
  std::snprintf(seed, sizeof seed, " (seed %llu)", static_cast<unsigned long long>(launch_.seed));
  return std::string(launch_.name) + ": " + error_ + seed;
}

// What threads that do not end have done comes before the end of the launch all the same.
void Grid::give_up() {
  for (const auto& block : blocks_) {
    for (Thread* const thread : block->by_index) {
      if (thread->state != State::ended) thread->fiber.release(&end_);
    }
  }
}

void Grid::resume_one() {
  if (ready_.empty()) {
    std::snprintf(error_, sizeof error_, "no thread can go on");
    return;
  }
  const std::uint32_t at = random_.below(ready_.size());
  Thread& thread = *ready_[at];
  ready_[at] = ready_.back();
  ready_.pop_back();
  running = &thread;
  thread.fiber.resume();
  running = nullptr;
  if (rests_ > 16 * blocks_.size()) idle();
  if (thread.state != State::ended || thread.block->ended != launch_.threads) return;
  --running_;
  if (begun_ < launch_.blocks) start_block(*thread.block);
}

// Everybody waits for a word that others write.
void Grid::idle() {
  rests_ = 0;
  if (launch_.goes_on && !launch_.goes_on(launch_.of)) ended_by_others_ = true;
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void Grid::fail(Thread& thread, const char* what) {
  if (error_[0] == 0) {
    std::snprintf(error_, sizeof error_, "block %u, thread %u: %s", thread.block->index,
                  thread.index, what);
  }
  for (;;) thread.fiber.suspend();
}

void Grid::wait(Thread& thread, State state) {
  thread.state = state;
  thread.fiber.suspend();
}
void Grid::wake(Thread& thread) {
  thread.state = State::runs;
  ready_.push_back(&thread);
}

std::span<Thread* const> warp_of(const Thread& thread) {
  const unsigned first = thread.index / warp_lanes * warp_lanes;
  return std::span<Thread* const>(thread.block->by_index).subspan(first, warp_lanes);
}

bool is_awaited_by_lanes(const Thread& thread) {
  const auto warp = warp_of(thread);
  return std::any_of(warp.begin(), warp.end(),
                     [](const Thread* mate) { return mate->state == State::in_warp_op; });
}

void Grid::ends(Thread& thread) {
  Block& block = *thread.block;
  if (block.arrived > 0) fail(thread, "has ended, while others wait for it at a barrier");
  if (is_awaited_by_lanes(thread)) {
    fail(thread, "has ended, while lanes of its warp wait for it");
  }
  thread.state = State::ended;
  ++block.ended;
  rests_ = 0;
}

bool Grid::pass_barrier(Thread& thread, bool is_or, bool value) {
  Block& block = *thread.block;
  Barrier& barrier = block.barriers[block.passed % 2];
  if (block.ended > 0) fail(thread, "waits at a barrier, but others have ended");
  if (is_awaited_by_lanes(thread)) {
    fail(thread, "waits at a barrier, while lanes of its warp wait for it elsewhere");
  }
  if (block.arrived == 0) {
    barrier.is_or = is_or;
    barrier.any = false;
  }
  if (barrier.is_or != is_or) fail(thread, "waits at another barrier than others do");
  barrier.any = barrier.any || value;
  races_release(&barrier.token);
  if (++block.arrived == launch_.threads) {
    block.arrived = 0;
    ++block.passed;
    rests_ = 0;
    thread.state = State::at_barrier;
    for (Thread* const other : block.by_index) wake(*other);
    thread.fiber.suspend();
  } else {
    wait(thread, State::at_barrier);
  }
  races_acquire(&barrier.token);
  return barrier.any;
}

WarpRound& Grid::meet(Thread& thread, WarpOp op, unsigned mask, std::uint64_t value) {
  Block& block = *thread.block;
  const unsigned warp = thread.index / warp_lanes;
  WarpRound& round = block.warps[warp][thread.warp_ops % 2];
  WarpRound& other = block.warps[warp][++thread.warp_ops % 2];
  if (mask != all_lanes) fail(thread, "names some lanes only, which is not emulated");
  if (round.arrived == 0) round.op = op;
  if (round.op != op) fail(thread, "is in another operation than lanes of its warp");
  if (op == WarpOp::sync) races_release(&round.token);
  round.values[thread.lane()] = value;
  round.arrived |= 1u << thread.lane();
  const bool complete = round.arrived == all_lanes;
  if (complete) other.arrived = 0;
  for (Thread* const mate : warp_of(thread)) {
    if (mate == &thread) continue;
    if (complete) {
      wake(*mate);
    } else if (mate->state == State::at_barrier || mate->state == State::ended) {
      fail(thread, "waits for lanes of its warp that have ended or are at a barrier");
    }
  }
  if (complete) {
    rests_ = 0;
    wake(thread);
    thread.fiber.suspend();
  } else {
    wait(thread, State::in_warp_op);
  }
  if (op == WarpOp::sync) races_acquire(&round.token);
  return round;
}

void Grid::may_switch(Thread& thread) {
  if (random_.below(4) != 0) return;
  wake(thread);
  thread.fiber.suspend();
}

void Grid::may_be_late() {
  if (random_.below(8) == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void Grid::rest(Thread& thread) {
  ++rests_;
  wake(thread);
  thread.fiber.suspend();
}

}  // namespace

std::string run(const Launch& launch) {
  if (launch.threads == 0 || launch.threads % warp_lanes != 0) return "a block is not whole warps";
  return Grid(launch).run();
}

unsigned thread_index() { return self().index; }
unsigned block_index() { return self().block->index; }
unsigned block_count() { return self().grid->launch().blocks; }

void barrier() {
  Thread& thread = self();
  thread.grid->pass_barrier(thread, false, false);
}
bool barrier_or(bool value) {
  Thread& thread = self();
  return thread.grid->pass_barrier(thread, true, value);
}

std::uint64_t shuffle(unsigned mask, std::uint64_t bits, unsigned from) {
  Thread& thread = self();
  return thread.grid->meet(thread, WarpOp::shuffle, mask, bits).values[from % warp_lanes];
}
unsigned vote(unsigned mask, bool value) {
  Thread& thread = self();
  const WarpRound& round = thread.grid->meet(thread, WarpOp::vote, mask, value ? 1 : 0);
  unsigned lanes = 0;
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if (round.values[lane] != 0) lanes |= 1u << lane;
  }
  return lanes;
}

void sync_warp(unsigned mask) {
  Thread& thread = self();
  thread.grid->meet(thread, WarpOp::sync, mask, 0);
}

void may_switch() {
  Thread& thread = self();
  thread.grid->may_switch(thread);
}
void may_be_late() { self().grid->may_be_late(); }
void rest() {
  Thread& thread = self();
  thread.grid->rest(thread);
}
void fence() {
  Thread& thread = self();
  thread.grid->words().fence(thread.fences);
}
void has_read(const void* word) {
  Thread& thread = self();
  thread.grid->words().has_read(thread.fences, word);
}
void writes(const void* word) {
  Thread& thread = self();
  thread.grid->words().writes(thread.fences, word);
}
void modifies(const void* word) {
  Thread& thread = self();
  thread.grid->words().modifies(thread.fences, word);
}

}  // namespace pith::simt
