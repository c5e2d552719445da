// Are the results of compressed calls what the scheme's definition says?
//
// Sums are checked, unless all of a call is: what left gradients and residuals of all ranks is what
// arrived. With feedback=0, where what is not elected is gone, that holds where something arrived.
// Elections are checked by who makes them, as the table of schemes says:
//
//   each rank   all: result and residual of each element, bits of the residual
//   leader      who leads, that the leader's exact k largest are elected, that they left every
//   rank,
//               and that nothing else moved
//   owners      that what was elected left every rank and nothing else moved, that somebody had
//               each of it above the threshold, and that nothing was elected twice
//
// The k largest are those of the library's own selector, which the library's tests hold against a
// plain one. Elections are not checked with feedback=0 (but of each rank), hierarchy=host and
// bypass=auto.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/spec.hpp"
#include "frame/compressors.hpp"
#include "frame/elections.hpp"
#include "frame/team.hpp"

namespace pith_perf {

struct Errors {
  std::int64_t wrong = 0;  // elements outside the rounding of their type
  double largest = 0;      // of result minus what was expected
  double squares = 0;      // sum of them
  std::size_t elements = 0;

  void add(double error, double allowed);
  void merge(const Errors& other);
};

// Follows calls of one shape from the compressors' first one on.
class CompressedCheck {
 public:
  CompressedCheck(const pith::Spec& spec, const Team& team, std::size_t count, pithDataType_t type,
                  pithRedOp_t op);

  // `gradients` and `results`: one vector of float32 a rank of this thread, exact copies of what
  // the call took and gave. Collective, as it tells the ranks what others had. Errors of this
  // thread's ranks.
  Errors check(const std::vector<std::span<const float>>& gradients,
               const std::vector<std::span<const float>>& results, const Compressors& compressors);

 private:
  Errors compare_with_topk(const std::vector<std::span<const float>>& gradients,
                           const std::vector<std::span<const float>>& results,
                           const Compressors& compressors);
  Errors compare_sums(const std::vector<std::span<const float>>& gradients,
                      const std::vector<std::span<const float>>& results,
                      const Compressors& compressors);
  // Gradient plus residual as it is before the call.
  Vectors sums_of(const std::vector<std::span<const float>>& gradients) const;
  // Elements of this thread's ranks that are not where the election has them: what was elected has
  // left the sum, all else is there. Residuals are those after the call.
  std::int64_t count_outside(const Election& election, const Vectors& sums,
                             const std::vector<std::span<const float>>& results) const;
  std::vector<float> sum_elected(const std::vector<std::span<const float>>& gradients);
  double allowed_of_result(double value) const;

  pith::Spec spec_;
  const Team& team_;
  std::size_t count_;
  pithDataType_t type_;
  double parts_;  // by which a sum is divided
  std::size_t step_ = 0;
  Vectors residuals_;
};

}  // namespace pith_perf
