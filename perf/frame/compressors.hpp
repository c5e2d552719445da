// The compressors of one thread's ranks, one a rank, and what they say about their last call.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "compress/spec.hpp"
#include "frame/team.hpp"

namespace pith_perf {

// `text` with bypass=never, unless it says something about bypassing. Throws std::runtime_error
// where it is no spec.
pith::Spec spec_to_measure(const std::string& text);

class Compressors {
 public:
  // Throws std::runtime_error with Pith's message, as all that follow do.
  Compressors(const pith::Spec& spec, const Team& team);
  ~Compressors();
  Compressors(const Compressors&) = delete;
  Compressors& operator=(const Compressors&) = delete;

  pithCompressor_t operator[](int local) const { return all_[static_cast<std::size_t>(local)]; }
  pithCompressorStats_t stats(int local) const;
  // Zeros for schemes that have none.
  std::vector<float> residual(int local, std::size_t count) const;

 private:
  bool has_residual_;
  std::vector<pithCompressor_t> all_;
};

}  // namespace pith_perf
