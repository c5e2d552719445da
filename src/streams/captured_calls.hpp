// Calls that graphs hold. They have numbers of their own (captured_numbers.hpp): all ranks capture
// in the same order and replay their calls in order, but replays and eager calls may interleave
// differently on each rank. Compressed calls are not captured: each one is a step of its own.
#pragma once

#include <atomic>
#include <mutex>

#include "collectives/call_args.hpp"
#include "core/engine.hpp"
#include "streams/captured_numbers.hpp"
#include "streams/stream_call.hpp"

namespace pith {

class CapturedCalls {
 public:
  CapturedCalls(Engine& engine, const cuda::Driver& driver, int ranks)
      : engine_(engine), driver_(driver), pairs_(static_cast<std::size_t>(ranks)) {}
  // Precondition: no replay will come.
  ~CapturedCalls();
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  // Calling thread, before anything is taken for the call. The error for which the call is refused
  // if its stream is being captured.
  Error check(const CollectiveArgs& args, cuda::CUstream stream);
  Error check(const CompressedArgs& args, cuda::CUstream stream);
  Error check(const PairArgs& args, cuda::CUstream stream);

  // Calling thread. Numbers a call that has been captured; replays may come at any time from now
  // on.
  void add(StreamCall& call);
  // Driver of the engine, here and below. A replay has ended: gives the call the numbers of the
  // next one.
  static void count_replay(StreamCall& call);
  // Removes a call whose graphs are gone.
  void remove(StreamCall& call);

  // Any thread. Whether graphs hold any calls.
  bool any() const { return alive_.load(std::memory_order_relaxed) > 0; }

 private:
  template <class Args>
  Error check_numbers_left(const Args& args, cuda::CUstream stream);
  bool has_numbers_left(const CollectiveArgs& args);
  bool has_numbers_left(const PairArgs& args);

  Engine& engine_;
  const cuda::Driver& driver_;
  std::atomic<int> alive_{0};  // calls whose graphs are not known to be gone
  std::mutex mutex_;           // guards the next two
  CapturedNumbers numbers_;
  CapturedPairs pairs_;
};

}  // namespace pith
