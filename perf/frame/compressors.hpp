// The compressors of one thread's ranks, one per rank, and their statistics of the last call.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "compress/spec.hpp"
#include "frame/team.hpp"

namespace pith_perf {

// Parses `text`, with bypass=never unless it sets bypass. Throws std::runtime_error if it is
// invalid.
pith::Spec spec_to_measure(const std::string& text);

class Compressors {
 public:
  // Throws std::runtime_error with Pith's message, as do the following functions.
  Compressors(const pith::Spec& spec, const Team& team);
  ~Compressors();
  Compressors(const Compressors&) = delete;
  Compressors& operator=(const Compressors&) = delete;

  pithCompressor_t operator[](int local) const { return all_[static_cast<std::size_t>(local)]; }
  pithCompressorStats_t stats(int local) const;
  // Zeros for schemes without a residual.
  std::vector<float> residual(int local, std::size_t count) const;

 private:
  bool has_residual_;
  std::vector<pithCompressor_t> all_;
};

}  // namespace pith_perf
