// Exact selection of the k largest magnitudes of gradient plus residual in one pass, range by
// range, so that the first pairs can be sent before the last range has been read.
//
// Bounds of the k-th magnitude come from earlier steps and a sample of this one. Elements above the
// upper bound are certain to be elected, as long as there are fewer than k of them, and are taken
// at once. Elements between the bounds wait for finish(), which takes the largest of them. Without
// bounds every element that is among the k largest so far waits. If the bounds were wrong,
// everything returns and is selected again that way from the accumulator; the single run that
// finish() leaves then replaces all earlier runs. The alternative, a histogram of the magnitudes
// and a pass from its bound, is slower: 3.1 ms for 0.6 to 0.7 (0.1 %), 3.1 for 0.9 to 1.4 (1 %), of
// 4 Mi elements of real gradients on one AVX2 core; faster only at 10 % where no bound is left at
// all (5.2 for 7.1).
//
// Ties go to the lowest index. Waiting elements are in the accumulator's memory, taken ones on the
// host.
#pragma once

#include "compress/compressor.hpp"
#include "compress/threshold_bounds.hpp"
#include "compress/vector_queue.hpp"

namespace pith {

class TopkSelector {
 public:
  // `early`: certain elements are taken before finish().
  TopkSelector(Compressor& compressor, const VectorQueue& queue, std::size_t k, bool early);
  TopkSelector(const TopkSelector&) = delete;
  TopkSelector& operator=(const TopkSelector&) = delete;
  // Elements that still wait return to the accumulator: the call has failed.
  ~TopkSelector() { return_waiting(); }
  FrameArena& frame_arena() const { return queue_.frame_arena(); }
  std::size_t elements() const { return compressor_.count(); }

  // Adds the gradient in [begin, begin + count). Its certain elements become a new run of taken().
  Task<Error> passing(std::size_t begin, std::size_t count);
  // The same in steps: looking() for several ranges, then ending_run() for the run of all of them.
  Task<Error> looking(std::size_t begin, std::size_t count);
  Task<Error> ending_run();
  // Reached when the last range has been read; on a device that has been awaited already.
  Fence looked() const { return queue_.on_device() ? Fence() : looked_; }
  // After all ranges. True if the bounds were wrong: everything has returned to the accumulator and
  // must be passed to looking_again(), range by range. Returns true only once.
  bool starts_anew();
  Task<Error> looking_again(std::size_t begin, std::size_t count);
  // Takes the rest as one more run; first repeats what looking_again() has not done.
  Task<Error> finishing();
  // That run replaces all earlier runs.
  bool replaces() const { return replaces_; }

  // The same on host memory, where nothing is awaited.
  void pass(std::size_t begin, std::size_t count) { run_at_once(passing(begin, count)); }
  bool finish() {
    run_at_once(finishing());
    return replaces_;
  }

 private:
  // Results of kernels; on a device in memory that it can access.
  struct Found {
    PassResult pass;
    std::size_t certain = 0;
    std::size_t lower = 0;
    float smallest = 0;
    double squares = 0;
  };
  Task<Error> foresee();
  bool foreseen() const { return bounds_.low > 0; }
  bool on_course() const;
  Task<Error> pass_running(AccumulateKernel::Args args, std::size_t begin);
  void return_waiting();
  Fence select(const AccumulateKernel::Args& args, float threshold, std::size_t begin);
  std::size_t survivors();
  Fence split(std::size_t count);
  std::size_t certain();
  void let_wait(std::size_t more);
  Fence keep(std::size_t n);
  void kept(std::size_t n);
  Fence take(const std::uint32_t* indices, const float* values, std::size_t count);
  void taken(std::size_t count);
  void copy(void* to, const void* from, std::size_t bytes);
  void count_in(const PassResult& result);
  std::uint32_t* waiting_indices() const {
    return reinterpret_cast<std::uint32_t*>(indices_.bytes().data);
  }
  float* waiting_values() const { return reinterpret_cast<float*>(values_.bytes().data); }

  Compressor& compressor_;
  const VectorQueue queue_;
  const std::size_t k_;
  const bool early_;
  const std::size_t room_;  // for waiting elements
  bool begun_ = false;
  Fence looked_;
  bool settled_ = false;  // whether the bounds were right has been decided
  bool replaces_ = false;
  ThresholdBounds bounds_;
  bool overflowed_ = false;
  float floor_ = 0;  // smaller elements are not among the k largest
  std::size_t waiting_ = 0;
  std::size_t unsplit_ = 0;  // the last ones, of the run that has not ended
  Scratch indices_;
  Scratch values_;
  Scratch lower_indices_;
  Scratch lower_values_;
  Scratch copied_;  // what a device copies out of what is taken
  Found own_;
  Scratch reached_;  // the same for a device
  Found* found_ = &own_;
};

}  // namespace pith
