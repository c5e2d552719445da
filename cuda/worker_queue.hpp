// The host's side of workers (cuda/kernels/worker.hpp): launches one per call on the call's stream,
// hands the steps of a communicator's calls to one of those that run, and releases streams.
//
// Calls overlap: several workers may run, and the steps of all their calls go through one ring, in
// order, to the worker that serves. When its call ends it hands over to another.
// Threads: launch() by calling threads, one at a time; everything else by the engine's driver.
#pragma once

#include <bit>
#include <memory>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/failure_probe.hpp"
#include "cuda/kernels/worker.hpp"

namespace pith::cuda {

struct StreamEntry;

// Set when all graphs that hold the calls of a captured stream are destroyed; null: unknown. Any
// thread.
using GraphsGone = std::shared_ptr<std::atomic<bool>>;

// State of an entry's worker: it polls only the entry's flag; it takes part in running steps; it
// has been told to leave, so that the host need not release the stream.
enum class Stay : std::uint8_t { waits, entered, left };

class WorkerQueue {
 public:
  // Sizes of device allocations: for boards, repeated as needed; for the ring.
  static constexpr std::size_t boards_bytes = std::size_t{1} << 20;
  static constexpr std::size_t ring_bytes = std::bit_ceil(sizeof(StepRing));

  // `tickets` are the compute queue's. `stream` is used only to clear memory.
  static Expected<std::unique_ptr<WorkerQueue>> create(Device& device, Slot& tickets,
                                                       CUstream stream, FailureProbe& probe,
                                                       unsigned blocks);
  // Does not block: a stream may still reach an abandoned call, and a graph may be replayed.
  ~WorkerQueue();
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;

  // Replaces a gate's stream memory operations. Precondition: the device's context is current.
  CUresult launch(CUstream stream, StreamEntry& entry);

  // The entry's worker runs. `submitted`: last ticket of what was launched on the compute queue.
  void enter(StreamEntry& entry, std::uint64_t submitted);
  bool serves() const { return !entered_.empty(); }

  // Precondition of these: serves(). They return false if the device has failed.
  bool push(std::uint32_t kernel, std::size_t blocks, const void* args, std::size_t bytes);
  // Precondition: the entry has entered. If false, the worker is not told and the entry waits
  // again.
  bool push_leave(StreamEntry& entry);
  // Lets everything pushed so far run and then write the ticket.
  bool publish(std::uint64_t ticket);

  // For kernels that walk their grid: two shares per block of a worker balance the load.
  unsigned most_blocks() const { return 2 * blocks_; }
  // Names a worker as server whose predecessor still ran at the time of the hand-over.
  void progress();

 private:
  struct Board {
    WorkerBoard* memory = nullptr;
    Device::Turn free;  // its slot's `start` is the worker's board_free
  };
  WorkerQueue(Device& device, Slot& tickets, CUstream stream, FailureProbe& probe, unsigned blocks)
      : device_(device), tickets_(tickets), stream_(stream), probe_(probe), blocks_(blocks) {}
  Error open();
  Error add_boards();
  Expected<Board*> take_board();
  Expected<WorkerBoard*> board_of(const StreamEntry& captured);
  Expected<WorkerBoard*> take_memory();
  bool make_room();

  Device& device_;
  CUfunction kernel_ = nullptr;
  Slot& tickets_;
  const CUstream stream_;
  FailureProbe& probe_;
  const unsigned blocks_;
  StepRing* ring_ = nullptr;
  std::vector<std::byte*> blocks_of_boards_;
  std::vector<Board> boards_;         // of eager calls, free or not
  std::vector<WorkerBoard*> unused_;  // never used so far
  struct Line {
    WorkerBoard* memory = nullptr;
    GraphsGone gone;
  };
  std::vector<Line> lines_;  // of captured streams, by StreamEntry::line
  std::uint64_t last_id_ = 0;

  // A worker that becomes the server once the ring has run everything before.
  struct Naming {
    std::uint64_t after;  // ticket
    std::uint64_t id;
  };
  std::vector<StreamEntry*> entered_;  // the first one's worker runs what is pushed now
  std::vector<Naming> namings_;
  std::uint64_t pushed_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t last_ticket_ = 0;  // of the ring
};

}  // namespace pith::cuda
