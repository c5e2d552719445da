// Are the results of compressed calls what the scheme's definition says?
//
// Top-k is compared with the plain algorithm: result and residual, element by element. Of the other
// schemes the sum is checked: what left gradients and residuals of all ranks is what arrived. With
// feedback=0, where what is not elected is gone, that holds where something arrived.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/spec.hpp"
#include "frame/compressors.hpp"
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
  std::vector<float> sum_elected(const std::vector<std::span<const float>>& gradients);
  double allowed_of_result(double value) const;

  pith::Spec spec_;
  const Team& team_;
  std::size_t count_;
  pithDataType_t type_;
  double parts_;  // by which a sum is divided
  std::vector<std::vector<float>> residuals_;
};

}  // namespace pith_perf
