// Calls that graphs hold. They have numbers of their own (captured_numbers.hpp): ranks capture in
// the same order, each replays its calls in order, and how replays and eager calls interleave may
// differ between ranks.
// Compressed calls are not captured: each one is another step.
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
  // No replay comes any more.
  ~CapturedCalls();
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  // Calling thread, before anything is taken for the call: what it is refused for where its stream
  // is being captured.
  Error check(const CollectiveArgs& args, cuda::CUstream stream);
  Error check(const CompressedArgs& args, cuda::CUstream stream);
  Error check(const PairArgs& args, cuda::CUstream stream);

  // Calling thread: it has been captured. Numbers it; replays may come at any time from now on.
  void add(StreamCall& call);
  // Driver of the engine, from here on: one has ended. Gives it the numbers of the next one.
  static void count_replay(StreamCall& call);
  // Its graphs are gone.
  void remove(StreamCall& call);

  // Any thread. Whether graphs hold any.
  bool any() const { return alive_.load(std::memory_order_relaxed) > 0; }

 private:
  template <class Args>
  Error check_numbers_left(const Args& args, cuda::CUstream stream);
  bool has_numbers_left(const CollectiveArgs& args);
  bool has_numbers_left(const PairArgs& args);

  Engine& engine_;
  const cuda::Driver& driver_;
  std::atomic<int> alive_{0};  // whose graphs are not known to be gone
  std::mutex mutex_;           // guards the next two
  CapturedNumbers numbers_;
  CapturedPairs pairs_;
};

}  // namespace pith
