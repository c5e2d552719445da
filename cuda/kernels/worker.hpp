// A kernel that runs the steps of calls as the host hands them over: the alternative to one launch
// per step. It replaces a call's wait on the user's stream, so that once the call has begun the
// driver need not launch, copy or allocate anything for it.
//
// Host and workers share a ring in pinned memory. One of the running workers serves the ring, which
// holds its id; a step `leave` names the next. The first block fetches steps and publishes them on
// the worker's board in device memory. All blocks that have started by then take shares of the
// step's blocks until none is left, so a device without room for all blocks only slows a step down.
#pragma once

#include "cuda/kernels/list.hpp"

namespace pith::cuda {

// Steps other than kernels of the list.
inline constexpr std::uint32_t step_nothing = 1u << 16;  // only writes its ticket
inline constexpr std::uint32_t step_leave = step_nothing + 1;
inline constexpr std::uint32_t step_wait = step_nothing + 2;  // waits until a word reaches a value

struct WorkerStep {
  std::uint32_t kernel;  // KernelName, or one of the above
  std::uint32_t blocks;
  std::uint64_t ticket;  // written when the step has run; 0: none
  std::uint32_t args_bytes;
  alignas(words_bytes) std::byte args[4032];
};

// Names the next server (0: none) and releases the stream of the worker that has served.
struct LeaveArgs {
  std::uint64_t next;
  std::uint64_t* end;
  std::uint64_t value;
};
struct WaitArgs {
  const std::uint64_t* word;
  std::uint64_t value;
};

inline constexpr std::uint64_t ring_steps = 64;

// In pinned memory. The counts only grow; step i is at i modulo ring_steps.
struct StepRing {
  alignas(64) std::uint64_t published = 0;
  std::uint64_t server = 0;
  alignas(64) std::uint64_t taken = 0;
  alignas(64) WorkerStep steps[ring_steps];
};

// In device memory; zero before the worker starts and after its last block has left.
struct WorkerBoard {
  std::uint64_t shares;  // the step's number and how many of its blocks are untaken
  std::uint64_t done;    // blocks of the step that have run
  std::uint64_t left;    // blocks of the worker that have left
  WorkerStep step;
};

struct WorkerArgs {
  std::uint64_t id;
  StepRing* ring;
  WorkerBoard* board;
  std::uint64_t* tickets;
  std::uint64_t* start;  // receives `value` when the stream arrives
  std::uint64_t* end;    // the stream is released at `value`
  std::uint64_t value;
  std::uint64_t* board_free;  // receives `free_value` when the board is free again; or null
  std::uint64_t free_value;
  bool captured;  // `end` is reset to zero for the next replay
};

constexpr unsigned largest_shared() {
  unsigned largest = 0;
  for (const KernelFacts& facts : kernel_facts) {
    if (facts.shared_bytes > largest) largest = facts.shared_bytes;
  }
  return largest;
}
constexpr unsigned largest_args() {
  unsigned largest = 0;
  for (const KernelFacts& facts : kernel_facts) {
    if (facts.args_bytes > largest) largest = facts.args_bytes;
  }
  return largest;
}
static_assert(largest_args() <= sizeof(WorkerStep::args));

// Gives a block the index and grid size of the step whose share it runs.
template <class Block>
class ShareOf : public Block {
 public:
  PITH_KERNEL ShareOf(const Block& block, unsigned index, unsigned count)
      : Block(block), index_(index), count_(count) {}
  PITH_KERNEL unsigned index() const { return index_; }
  PITH_KERNEL unsigned count() const { return count_; }

 private:
  unsigned index_;
  unsigned count_;
};

// Not inlined: one function with all kernels' bodies would need the registers of all.
template <class Kernel, class Block>
PITH_KERNEL_CALL void run_share(const Block& block, unsigned index, unsigned count,
                                const std::byte* args, std::byte* room) {
  static_assert(Kernel::threads == Block::threads);
  static_assert(alignof(typename Kernel::Args) <= words_bytes);
  static_assert(alignof(typename Kernel::Shared) <= words_bytes);
  Kernel::run(ShareOf<Block>(block, index, count),
              *reinterpret_cast<const typename Kernel::Args*>(args),
              *reinterpret_cast<typename Kernel::Shared*>(room));
}

struct Worker {
  using Args = WorkerArgs;
  static constexpr unsigned threads = 256;
  static constexpr std::uint64_t no_share = ~std::uint64_t{0};
  static constexpr std::uint64_t goes_on = no_share - 1;
  // Packs of a step that are fetched before its length is known: enough for all but one kernel.
  static constexpr std::size_t packs_at_once = 36;
  static constexpr unsigned share_bits = 24;
  static constexpr std::uint64_t share_mask = (std::uint64_t{1} << share_bits) - 1;
  // Every block of a worker decrements the count once more after a step's last block is taken.
  static constexpr std::uint64_t asked_in_vain = 2048;
  static constexpr std::uint64_t most_blocks = share_mask - asked_in_vain;  // of a kernel
  // Means "leave". No step has it: only steps put on the board are numbered.
  static constexpr std::uint64_t last_number = ~std::uint64_t{0} >> share_bits;
  struct Shared {
    alignas(words_bytes) std::byte room[largest_shared()];
    WorkerStep step;
    std::uint64_t told;
    std::uint64_t number;  // of the step in `step`
  };

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    if (block.index() == 0) {
      lead(block, args, shared);
    } else {
      follow(block, args, shared);
    }
    depart(block, args);
  }

 private:
  PITH_DEVICE static std::uint64_t pack(std::uint64_t number, std::uint64_t blocks) {
    return number << share_bits | (asked_in_vain + blocks);
  }
  PITH_DEVICE static std::uint64_t number_of(std::uint64_t shares) { return shares >> share_bits; }
  PITH_DEVICE static std::uint64_t untaken_of(std::uint64_t shares) {
    const std::uint64_t left = shares & share_mask;
    return left > asked_in_vain ? left - asked_in_vain : 0;
  }

  // A value found by the first thread, given to all threads.
  template <class Block, class Find>
  PITH_KERNEL static std::uint64_t tell(const Block& block, Shared& shared, Find find) {
    block.sync();
    block.each([&](unsigned thread) {
      if (thread == 0) shared.told = find();
    });
    block.sync();
    return shared.told;
  }

  // Position in the ring of this worker's next step; no_share: there will be none. A worker that
  // has begun to serve polls only `published` until it runs its own leave.
  template <class Block>
  PITH_KERNEL static std::uint64_t await_step(const Block& block, const Args& args, Shared& shared,
                                              std::uint64_t serves_from) {
    return tell(block, shared, [&]() -> std::uint64_t {
      for (unsigned looks = 0;; ++looks) {
        if (serves_from != no_share) {
          if (load_system(&args.ring->published) != serves_from) return serves_from;
        } else if (const std::uint64_t first = look(args); first != goes_on) {
          return first;
        }
        if (!block.rest(looks)) return no_share;
      }
    });
  }

  // For a worker that has not served: its first step, no_share, or goes_on. A poll costs one round
  // trip over the bus, two once the worker is named server. It stays server until it has run its
  // leave, so all steps published from then on are its own.
  PITH_DEVICE static std::uint64_t look(const Args& args) {
    const std::uint64_t server = peek_system(&args.ring->server);
    const std::uint64_t end = peek_system(args.end);
    if (server == args.id) {
      fence_system();
      const std::uint64_t taken = peek_system(&args.ring->taken);
      const std::uint64_t published = peek_system(&args.ring->published);
      fence_system();
      if (taken < published) return taken;
    }
    return end >= args.value ? no_share : goes_on;
  }

  template <class Block>
  PITH_KERNEL static void copy_step(const Block& block, WorkerStep& to, const WorkerStep& from) {
    constexpr std::size_t head = sizeof(WorkerStep) - sizeof(WorkerStep::args);
    copy_packs(block, to, from, 0, packs_at_once);
    const std::size_t packs = (head + to.args_bytes + words_bytes - 1) / words_bytes;
    if (packs > packs_at_once) copy_packs(block, to, from, packs_at_once, packs);
  }

  template <class Block>
  PITH_KERNEL static void copy_packs(const Block& block, WorkerStep& to, const WorkerStep& from,
                                     std::size_t begin, std::size_t end) {
    auto* const out = reinterpret_cast<std::byte*>(&to);
    const auto* const in = reinterpret_cast<const std::byte*>(&from);
    block.each([&](unsigned thread) {
      for (std::size_t i = begin + thread; i < end; i += threads) {
        store_pack(out + i * words_bytes, load_pack<std::uint64_t, 2>(in + i * words_bytes));
      }
    });
    block.sync();
  }

  template <class Block>
  PITH_KERNEL static void lead(const Block& block, const Args& args, Shared& shared) {
    block.each([&](unsigned thread) {
      if (thread == 0) store_system(args.start, args.value);
    });
    std::uint64_t taken = no_share;
    std::uint64_t number = 0;
    while ((taken = await_step(block, args, shared, taken)) != no_share) {
      copy_step(block, shared.step, args.ring->steps[taken % ring_steps]);
      if (!run_step(block, args, shared, number)) break;
      ++taken;
      const bool leaves = is_leave_of(shared.step, args);
      block.sync();
      block.each([&](unsigned thread) {
        if (thread == 0) finish_step(args, shared.step, taken);
      });
      block.sync();
      if (leaves) break;
    }
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      store_fresh(&args.board->shares, pack(last_number, 0));
      if (args.captured) store_system(args.end, 0);
    });
  }

  // False: what the step waits for will not come. `number`: of the last step on the board.
  template <class Block>
  PITH_KERNEL static bool run_step(const Block& block, const Args& args, Shared& shared,
                                   std::uint64_t& number) {
    if (shared.step.kernel == step_wait) {
      const auto& wait = *reinterpret_cast<const WaitArgs*>(shared.step.args);
      return tell(block, shared, [&]() -> std::uint64_t {
               for (unsigned looks = 0; load_system(wait.word) < wait.value; ++looks) {
                 if (!block.rest(looks)) return 0;
               }
               return 1;
             }) != 0;
    }
    if (shared.step.kernel >= kernel_count) return true;
    const std::uint64_t blocks = shared.step.blocks;
    if (blocks == 1) {
      run_body(block, shared, 0);
      return true;
    }
    copy_step(block, args.board->step, shared.step);
    ++number;
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      shared.number = number;
      store_fresh(&args.board->done, 0);
      fence_global();
      store_fresh(&args.board->shares, pack(number, blocks));
    });
    help(block, args, shared);
    return tell(block, shared, [&]() -> std::uint64_t {
             for (unsigned looks = 0; load_fresh(&args.board->done) != blocks; ++looks) {
               if (!block.rest(looks)) return 0;
             }
             fence_global();
             return 1;
           }) != 0;
  }

  PITH_DEVICE static bool is_leave_of(const WorkerStep& step, const Args& args) {
    if (step.kernel != step_leave) return false;
    const auto& leave = *reinterpret_cast<const LeaveArgs*>(step.args);
    return leave.end == args.end && leave.value == args.value;
  }
  PITH_DEVICE static void finish_step(const Args& args, const WorkerStep& step,
                                      std::uint64_t taken) {
    // The ring's slot has been read. The next server sees this before it sees its name.
    poke_system(&args.ring->taken, taken);
    if (step.kernel != step_leave) return write_ticket(args, step);
    const auto& leave = *reinterpret_cast<const LeaveArgs*>(step.args);
    store_system(leave.end, leave.value);
    // The next server writes later tickets, and may end a call whose flag this was, so nothing may
    // be written after naming it. If none is named the ticket comes last: the host names a server
    // when it has seen that there is none.
    if (leave.next != 0) write_ticket(args, step);
    store_system(&args.ring->server, leave.next);
    if (leave.next == 0) write_ticket(args, step);
  }
  PITH_DEVICE static void write_ticket(const Args& args, const WorkerStep& step) {
    if (step.ticket != 0) store_system(args.tickets, step.ticket);
  }

  template <class Block>
  PITH_KERNEL static void follow(const Block& block, const Args& args, Shared& shared) {
    std::uint64_t seen = 0;
    block.each([&](unsigned thread) {
      if (thread == 0) shared.number = no_share;
    });
    while (seen != last_number) {
      const std::uint64_t number = tell(block, shared, [&]() -> std::uint64_t {
        for (unsigned looks = 0;; ++looks) {
          const std::uint64_t now = number_of(load_fresh(&args.board->shares));
          if (now != seen) return now;
          if (!block.rest(looks)) return last_number;
        }
      });
      seen = number == last_number ? number : help(block, args, shared);
    }
  }

  // Runs blocks of the step on the board until none is left; returns the step's number. A block
  // that is taken keeps its step on the board until it has run.
  template <class Block>
  PITH_KERNEL static std::uint64_t help(const Block& block, const Args& args, Shared& shared) {
    for (;;) {
      const std::uint64_t taken = tell(block, shared, [&]() -> std::uint64_t {
        const std::uint64_t old = add_global(&args.board->shares, ~std::uint64_t{0});
        fence_global();
        return old;
      });
      const std::uint64_t untaken = untaken_of(taken);
      if (untaken == 0) return number_of(taken);
      if (shared.number != number_of(taken)) {
        copy_step(block, shared.step, args.board->step);
        block.each([&](unsigned thread) {
          if (thread == 0) shared.number = number_of(taken);
        });
      }
      run_body(block, shared, static_cast<unsigned>(shared.step.blocks - untaken));
      block.sync();
      block.each([&](unsigned thread) {
        if (thread != 0) return;
        fence_global();
        add_global(&args.board->done, 1);
      });
    }
  }

  template <class Block>
  PITH_KERNEL static void run_body(const Block& block, Shared& shared, unsigned index) {
    const unsigned count = shared.step.blocks;
    const std::byte* const args = shared.step.args;
    block.sync();
    switch (static_cast<KernelName>(shared.step.kernel)) {
#define PITH_CUDA_RUN(name, ...)                                           \
  case KernelName::name:                                                   \
    run_share<__VA_ARGS__, Block>(block, index, count, args, shared.room); \
    break;
      PITH_CUDA_KERNELS(PITH_CUDA_RUN)
#undef PITH_CUDA_RUN
      case KernelName::count:
        break;
    }
  }

  // The last block resets the board.
  template <class Block>
  PITH_KERNEL static void depart(const Block& block, const Args& args) {
    block.sync();
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      fence_global();
      if (add_global(&args.board->left, 1) + 1 != block.count()) return;
      store_fresh(&args.board->shares, 0);
      store_fresh(&args.board->done, 0);
      store_fresh(&args.board->left, 0);
      fence_global();
      if (args.board_free) store_system(args.board_free, args.free_value);
    });
  }
};

inline constexpr KernelFacts worker_facts{"pith_worker", Worker::threads, sizeof(WorkerArgs),
                                          sizeof(Worker::Shared)};

}  // namespace pith::cuda
