// The host's side of workers (cuda/kernels/worker.hpp): puts one on a stream for each call, hands
// the steps of a communicator's calls to one of those that run, and lets streams go on.
//
// Calls overlap: several workers may run, and the steps of all their calls go through one ring, in
// order, to the one that serves. When its own call ends it hands over to another one.
// Threads: launch() by calling threads, which take turns; all else by the engine's driver.
#pragma once

#include <bit>
#include <memory>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/failure_probe.hpp"
#include "cuda/kernels/worker.hpp"

namespace pith::cuda {

struct StreamEntry;

// Set when all graphs that hold the calls of a captured stream are gone; null: nobody can tell. Any
// thread.
using GraphsGone = std::shared_ptr<std::atomic<bool>>;

// What the worker on a entry's stream does: it looks at nothing but the entry's flag; it is one
// of those that run steps; it has been told to go, and the host has nothing to open.
enum class Stay : std::uint8_t { waits, entered, left };

class WorkerQueue {
 public:
  // What it takes from the device: for boards, as often as they do not suffice; for the ring.
  static constexpr std::size_t boards_bytes = std::size_t{1} << 20;
  static constexpr std::size_t ring_bytes = std::bit_ceil(sizeof(StepRing));

  // `tickets` are those of the compute queue; its `stream` is used here only to clear memory.
  static Expected<std::unique_ptr<WorkerQueue>> create(Device& device, Slot& tickets,
                                                       CUstream stream, FailureProbe& probe,
                                                       unsigned blocks);
  // Waits for nobody: a stream may not have got to an abandoned call yet, a graph may be replayed.
  ~WorkerQueue();
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;

  // Instead of the stream memory operations of a gate. The device's context is current.
  CUresult launch(CUstream stream, StreamEntry& entry);

  // Its worker runs. `submitted`: the last ticket of what the compute queue was given otherwise.
  void enter(StreamEntry& entry, std::uint64_t submitted);
  bool serves() const { return !entered_.empty(); }

  // Precondition of these: serves(). False: the device has failed.
  bool push(std::uint32_t kernel, std::size_t blocks, const void* args, std::size_t bytes);
  // The entry has entered. False also: its worker is not told, and the entry waits again.
  bool push_leave(StreamEntry& entry);
  // What was pushed runs from now on, and then the ticket is written.
  bool publish(std::uint64_t ticket);

  // For kernels that walk their grid: two for each block of a worker even out what they find.
  unsigned most_blocks() const { return 2 * blocks_; }
  // A worker that was named while another one still ran takes over as soon as it can.
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
  std::vector<WorkerBoard*> unused_;  // that nobody has had
  struct Line {
    WorkerBoard* memory = nullptr;
    GraphsGone gone;
  };
  std::vector<Line> lines_;  // of captured streams, by StreamEntry::line
  std::uint64_t last_id_ = 0;

  // To be the server once the ring has run what went before.
  struct Naming {
    std::uint64_t after;  // ticket
    std::uint64_t id;
  };
  std::vector<StreamEntry*> entered_;  // the first one's worker is to run what is pushed now
  std::vector<Naming> namings_;
  std::uint64_t pushed_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t last_ticket_ = 0;  // of the ring
};

}  // namespace pith::cuda
