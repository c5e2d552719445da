// Exact selection of the k largest magnitudes of gradient plus residual, in one pass, and range by
// range, so that the first pairs leave while the last ones have not been looked at yet.
//
// Bounds of the k-th magnitude come from the steps before and a sample of this one. What lies above
// the upper bound is certain to be elected, as long as there are less than k of such elements, and
// is taken at once. What lies between the bounds waits for finish(), which takes the largest of
// them. Without bounds every element waits that is among the k largest so far. Where the bounds
// were wrong all goes back and is selected so from the accumulator: the one run that finish()
// leaves then replaces those before. A histogram of the magnitudes and a pass from its bound are
// slower: 3.1 ms for 0.6 to 0.7 (0.1 %), 3.1 for 0.9 to 1.4 (1 %), of 4 Mi elements of real
// gradients on one AVX2 core; faster only at 10 % where no bound is left at all (5.2 for 7.1).
//
// Ties go to the lowest index. What waits lies where the accumulator does, what is taken on the
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
  // What still waits goes back to the accumulator: the call has failed.
  ~TopkSelector() { return_waiting(); }
  FrameArena& frame_arena() const { return queue_.frame_arena(); }
  std::size_t elements() const { return compressor_.count(); }

  // Adds the gradient in [begin, begin + count). Its certain elements are a new run of taken().
  Task<Error> passing(std::size_t begin, std::size_t count);
  // The same in steps: ranges that are looked at one after the other, and the run of all of them.
  Task<Error> looking(std::size_t begin, std::size_t count);
  Task<Error> ending_run();
  // When the last range has been looked at; a device has been waited for.
  Fence looked() const { return queue_.on_device() ? Fence() : looked_; }
  // After all ranges. True: the bounds were wrong, all has gone back to the accumulator, and is to
  // be looked at again, range by range. Tells so once.
  bool starts_anew();
  Task<Error> looking_again(std::size_t begin, std::size_t count);
  // The rest, as one more run; does what has been left out of that.
  Task<Error> finishing();
  // That run replaces all runs before.
  bool replaces() const { return replaces_; }

  // The same on host memory, where nothing is waited for.
  void pass(std::size_t begin, std::size_t count) { run_at_once(passing(begin, count)); }
  bool finish() {
    run_at_once(finishing());
    return replaces_;
  }

 private:
  // What kernels tell. Where a device writes it, memory that it reaches.
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
  const std::size_t room_;  // for what waits
  bool begun_ = false;
  Fence looked_;
  bool settled_ = false;  // whether the bounds were right
  bool replaces_ = false;
  ThresholdBounds bounds_;
  bool overflowed_ = false;
  float floor_ = 0;  // what is smaller is not among the k largest
  std::size_t waiting_ = 0;
  std::size_t unsplit_ = 0;  // the last of those, of the run that has not ended
  Scratch indices_;
  Scratch values_;
  Scratch lower_indices_;
  Scratch lower_values_;
  Scratch copied_;  // what a device gives of what is taken
  Found own_;
  Scratch reached_;  // the same where a device writes it
  Found* found_ = &own_;
};

}  // namespace pith
