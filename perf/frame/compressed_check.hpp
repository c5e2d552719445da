// Checks results of compressed calls against the scheme's definition.
//
// Where all elements are sent in few bits, each may be off by what rounding loses on each rank and
// in the sum; of signs the majority is checked, and of lossless every bit of float32 sums.
// Otherwise: Sums are checked, unless the whole result is: what was removed from all ranks'
// gradients and residuals must have arrived. With feedback=0, where unelected elements are dropped,
// this holds only for elements that arrived, and only where all ranks send the same ones. Where
// each rank elects a list, no element may be larger than what all ranks had of it.
// Elections are checked depending on the scheme's electors:
//
//  each rank   everything: result and residual of each element, bits of the residual
//  leader      who leads, that the leader's exact k largest are elected, that they were removed on
//              every rank, and that nothing else was sent
//  each by a rule   sums; with feedback=0 no element is larger than the largest that ranks had
//  owners      that what was elected was removed on every rank and nothing else was sent, that some
//              rank had each element above the threshold, and that nothing was elected twice
//
// Of atomo, where each rank draws, results are compared with the same draws.
//
// The k largest are computed by the library's own selector, which its tests compare with a plain
// one. Elections are not checked with feedback=0 (except for `each rank`), hierarchy=host and
// bypass=auto.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/scheme.hpp"
#include "compress/spec.hpp"
#include "frame/compressors.hpp"
#include "frame/elections.hpp"
#include "frame/errors.hpp"
#include "frame/team.hpp"

namespace pith_perf {

// Follows calls of one shape, starting with the compressors' first one.
class CompressedCheck {
 public:
  CompressedCheck(const pith::Spec& spec, const Team& team, std::size_t count, pithDataType_t type,
                  pithRedOp_t op);

  // `gradients` and `results`: one float32 vector per rank of this thread, exact copies of the
  // call's input and output. Collective, since ranks exchange what they had. Returns the errors of
  // this thread's ranks.
  Errors check(const std::vector<std::span<const float>>& gradients,
               const std::vector<std::span<const float>>& results, const Compressors& compressors);

 private:
  Errors compare_with_topk(const std::vector<std::span<const float>>& gradients,
                           const std::vector<std::span<const float>>& results,
                           const Compressors& compressors);
  Errors compare_sums(const std::vector<std::span<const float>>& gradients,
                      const std::vector<std::span<const float>>& results,
                      const Compressors& compressors);
  // Of a scheme that corrects momentum: sums of what velocities added.
  Errors compare_corrected(const std::vector<std::span<const float>>& gradients,
                           const std::vector<std::span<const float>>& results,
                           const Compressors& compressors);
  // Of lists without a residual: no element may be larger than ranks can have sent.
  Errors compare_bounds(const std::vector<std::span<const float>>& gradients,
                        const std::vector<std::span<const float>>& results,
                        const Compressors& compressors) const;
  // Of what each rank elects by a rule of the whole vector, and changes: the most it can have sent.
  std::vector<double> largest_sent(const std::vector<std::span<const float>>& gradients,
                                   const Compressors& compressors) const;
  // Of matrices whose singular values each rank draws.
  Errors compare_drawn(const std::vector<std::span<const float>>& gradients,
                       const std::vector<std::span<const float>>& results);
  // How the last call coded all elements, if it did.
  std::optional<pith::Coding> coding_in_use(const Compressors& compressors) const;
  // Of lossless, which promises ((x0 + x1) + x2) + ... in float32.
  Errors compare_in_rank_order(const std::vector<std::span<const float>>& gradients,
                               const std::vector<std::span<const float>>& results) const;
  // `mine`: of this thread's ranks, residuals included.
  template <class Coding>
  Errors compare_coded(const Coding& coding, bool votes, const Vectors& mine,
                       const std::vector<std::span<const float>>& results) const;
  // What a call that sent every element has left.
  Errors check_left(bool keeps_rest, const std::vector<std::span<const float>>& gradients,
                    const std::vector<std::span<const float>>& results,
                    const Compressors& compressors);
  // Gradient plus residual before the call.
  Vectors sums_of(const std::vector<std::span<const float>>& gradients) const;
  // Elements of this thread's ranks that contradict the election: elected ones must have been
  // removed from the sum, all others kept. Residuals are those after the call.
  std::int64_t count_outside(const Election& election, const Vectors& sums,
                             const std::vector<std::span<const float>>& results) const;
  std::vector<float> sum_elected(const std::vector<std::span<const float>>& gradients);

  pith::Spec spec_;
  const Team& team_;
  std::size_t count_;
  pithDataType_t type_;
  double parts_;  // the divisor of sums
  std::size_t step_ = 0;
  Vectors residuals_;
  Vectors velocities_;  // where momentum is corrected
};

}  // namespace pith_perf
