// Exact selection of the k largest magnitudes of gradient plus residual, in one pass, and range by
// range, so that the first pairs leave while the last ones have not been looked at yet.
//
// Bounds of the k-th magnitude come from the steps before and a sample of this one. What lies above
// the upper bound is certain to be elected, as long as there are less than k of such elements, and
// is taken at once. What lies between the bounds waits for finish(), which takes the largest of
// them. Without bounds every element waits that is among the k largest so far. Where the bounds
// were wrong all goes back and is selected so from the accumulator: the one run that finish()
// leaves then replaces those before.
//
// Ties go to the lowest index. Host memory.
#pragma once

#include "compress/compressor.hpp"
#include "compress/threshold_bounds.hpp"

namespace pith {

class TopkSelector {
 public:
  // `early`: certain elements are taken before finish().
  TopkSelector(Compressor& compressor, Compute& host, std::size_t k, bool early);
  TopkSelector(const TopkSelector&) = delete;
  TopkSelector& operator=(const TopkSelector&) = delete;
  // What still waits goes back to the accumulator: the call has failed.
  ~TopkSelector() { return_waiting(); }

  // Adds the gradient in [begin, begin + count). Its certain elements are a new run of taken().
  void pass(std::size_t begin, std::size_t count);
  // After all ranges: the rest, as one more run. True: it replaces all runs before.
  bool finish();

 private:
  void foresee();
  bool foreseen() const { return bounds_.low > 0; }
  bool on_course() const;
  void pass_foreseen(const AccumulateKernel::Args& args, std::size_t begin);
  void pass_running(AccumulateKernel::Args args, std::size_t begin);
  void start_anew();
  void return_waiting();
  void keep(std::size_t n);
  void part(std::size_t count);
  void take(const std::uint32_t* indices, const float* values, std::size_t count);
  void count_in(const PassResult& result);
  std::uint32_t* waiting_indices() const {
    return reinterpret_cast<std::uint32_t*>(indices_.bytes().data);
  }
  float* waiting_values() const { return reinterpret_cast<float*>(values_.bytes().data); }

  Compressor& compressor_;
  Compute& host_;
  const std::size_t k_;
  const bool early_;
  const std::size_t room_;  // for what waits
  bool begun_ = false;
  ThresholdBounds bounds_;
  bool overflowed_ = false;
  float floor_ = 0;  // what is smaller is not among the k largest
  std::size_t waiting_ = 0;
  Scratch indices_;
  Scratch values_;
  Scratch lower_indices_;
  Scratch lower_values_;
};

}  // namespace pith
