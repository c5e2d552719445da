// Connects user streams and collectives: a stream that reaches a call sets a flag and waits; the
// thread that drives the engine starts the call, and its end releases the stream.
//
// Eager:    write(start = v)  wait(end >= v)                  a slot per call, v only grows
// Captured: write(start = j)  wait(end >= j)  write(end = 0)  a slot per stream, j = 1, 2, ...
// Every replay runs the same operations, and the host resets `start` once it has seen it.
//
// A line is the sequence of calls captured on one stream. It is removed and its slot reused when
// all graphs and executable graphs that hold it are destroyed, which a user object of the graph
// signals by setting a flag. Drivers without user objects keep lines as long as the gate. With a
// queue of workers one kernel replaces the three operations. No host function and no synchronising
// call is used, and the caller never blocks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/pollable.hpp"
#include "cuda/worker_queue.hpp"

namespace pith::cuda {

// One call on one stream. The owner keeps it: an eager one until close(), a captured one until
// `gone` or as long as the gate.
struct StreamEntry {
  void (*started)(StreamEntry& self) = nullptr;  // from progress(): the stream has arrived
  void (*gone)(StreamEntry& self) = nullptr;     // from progress(): it cannot be replayed any more
  Slot* slot = nullptr;
  std::uint64_t value = 0;
  bool captured = false;
  int line = -1;
  GraphsGone gone_graphs;    // of a captured entry
  std::uint64_t worker = 0;  // the worker that replaces the wait on the stream; 0: none
  Stay stay = Stay::waits;   // of that worker
  bool enters = true;        // the call is going to submit steps
};

// Whether the stream is being captured, and in which capture.
struct CaptureInfo {
  bool active = false;
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
};
Expected<CaptureInfo> capture_of(const Driver& driver, CUstream stream);

class StreamGate final : public Pollable {
 public:
  // `workers` may be null.
  StreamGate(Device& device, WorkerQueue* workers) : device_(device), workers_(workers) {}
  ~StreamGate() override;

  // Calling thread. Enqueues or captures the operations on the stream; sets entry.captured. Nothing
  // starts before publish().
  Error enqueue(CUstream stream, StreamEntry& entry);
  void publish(StreamEntry& entry);

  // Engine's driver. Releases the stream from the host; the alternative is
  // CudaCompute::open_after_all.
  static void open(StreamEntry& entry);
  static std::uint64_t& end_of(StreamEntry& entry) { return entry.slot->end; }
  // The call has ended; a replay may start it again.
  void close(StreamEntry& entry);
  // Drops every eager entry that no stream has reached, after starting those that have been
  // reached. `end` has to open and close each.
  void abandon(void (*end)(StreamEntry& entry));

  bool progress() override;
  bool busy() const override;
  int descriptor() const override { return -1; }
  bool arm() override;
  void disarm() override {}

 private:
  using Ended = GraphsGone;  // may outlive the gate
  // The captured calls of one stream in one capture; each replay runs them in order.
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
    std::uint64_t last = 0;  // the last value used
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
  std::vector<Capturing> capturing_;  // the calling thread's lines; index: StreamEntry::line
  std::vector<Line> lines_;           // the engine's lines; same index
  std::size_t live_lines_ = 0;
  std::vector<StreamEntry*> waiting_;
  std::uint64_t last_start_ns_ = 0;
};

}  // namespace pith::cuda
