// Where user streams and collectives meet: a stream that reaches a call says so and waits; whoever
// drives the engine starts the call, and its end lets the stream go on.
//
// Eager:    write(start = v)  wait(end >= v)                  a slot for the call, v only grows
// Captured: write(start = j)  wait(end >= j)  write(end = 0)  a slot for the captured stream, j =
// 1,
//           2, ... for its calls; every replay runs the same operations, and the host takes `start`
//           back to zero when it has seen it.
// A line of captured calls is forgotten, and its slot used again, when graphs and executable graphs
// that hold them are gone: a user object of the graph's marks that, and does nothing else. Where
// the driver has none, lines stay as long as the gate. Where a queue of workers is given, one
// kernel does all three. No host function, no synchronising call, nothing that blocks the caller.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/pollable.hpp"
#include "cuda/worker_queue.hpp"

namespace pith::cuda {

// One call on one stream. The owner keeps it: an eager one until it is closed, a captured one until
// it is gone, or as long as the gate.
struct StreamEntry {
  void (*started)(StreamEntry& self) = nullptr;  // from progress(), when a stream has got there
  void (*gone)(StreamEntry& self) = nullptr;  // from progress(): no replay of it can come any more
  Slot* slot = nullptr;
  std::uint64_t value = 0;
  bool captured = false;
  int line = -1;
  GraphsGone gone_graphs;    // where it is captured
  std::uint64_t worker = 0;  // that runs on the stream instead of a wait; 0: none
  Stay stay = Stay::waits;   // of that worker
  bool enters = true;        // the call is going to submit steps
};

// What is enqueued on a stream now: captured, in which capture.
struct CaptureInfo {
  bool active = false;
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
};
Expected<CaptureInfo> capture_of(const Driver& driver, CUstream stream);

class StreamGate final : public Pollable {
 public:
  // `workers`: may be null.
  StreamGate(Device& device, WorkerQueue* workers) : device_(device), workers_(workers) {}
  ~StreamGate() override;

  // Calling thread. Enqueues the operations on the stream, or captures them; sets
  // entry.captured. Nothing is started before publish().
  Error enqueue(CUstream stream, StreamEntry& entry);
  void publish(StreamEntry& entry);

  // Driver of the engine. Lets the stream go on from the host; else CudaCompute::open_after_all
  // does so.
  static void open(StreamEntry& entry);
  static std::uint64_t& end_of(StreamEntry& entry) { return entry.slot->end; }
  // The call has ended; a replay may start it again.
  void close(StreamEntry& entry);
  // Forgets every eager entry that no stream has reached; those that have been start first. `end`
  // is to open and close each.
  void abandon(void (*end)(StreamEntry& entry));

  bool progress() override;
  bool busy() const override;
  int descriptor() const override { return -1; }
  bool arm() override;
  void disarm() override {}

 private:
  using Ended = GraphsGone;  // which may be after the gate
  // The captured calls of one stream in one capture, which run one after another in each replay.
  struct Line {
    Slot* slot = nullptr;  // null: gone
    Ended ended;
    std::vector<StreamEntry*> entries;
    bool running = false;
  };
  struct Capturing {
    std::uint64_t capture = 0;
    const void* stream = nullptr;
    Slot* slot = nullptr;
    Ended ended;
    std::uint64_t last = 0;  // value
  };
  struct FreshLine {
    std::size_t index;
    Slot* slot;
    Ended ended;
  };
  Error enqueue_eager(CUstream stream, StreamEntry& entry);
  Error enqueue_captured(CUstream stream, const CaptureInfo& capture, StreamEntry& entry);
  Expected<std::size_t> line_of(CUstream stream, const CaptureInfo& capture);
  Ended watch(CUgraph graph) const;
  Error operations(CUstream stream, StreamEntry& entry) const;
  void take_fresh();
  static bool is_gone(const Line& line);
  void forget(std::size_t index);
  bool start_waiting();
  bool start_replayed();

  Device& device_;
  WorkerQueue* const workers_;
  std::mutex mutex_;  // guards the next three
  std::vector<StreamEntry*> fresh_entries_;
  std::vector<FreshLine> fresh_lines_;
  std::vector<std::size_t> spare_lines_;  // indices
  std::atomic<bool> fresh_{false};
  std::vector<Capturing> capturing_;  // calling thread's view of lines: index `StreamEntry::line`
  std::vector<Line> lines_;           // engine's view: the same index
  std::size_t live_lines_ = 0;
  std::vector<StreamEntry*> waiting_;
  std::uint64_t last_start_ns_ = 0;
};

}  // namespace pith::cuda
