// What a call changes of a compressor besides its accumulator: all of it small, and all of it is
// kept with a call, so that one that other ranks did not complete can be undone, and saved.
#pragma once

#include <cstdint>

#include "compress/election.hpp"
#include "compress/exdyna_control.hpp"
#include "compress/threshold_forecast.hpp"

namespace pith {

// Of whose vector the state is, under hierarchy=host.
struct SliceLayout {
  std::uint64_t hosts = 0;  // which ranks share one, as a hash; 0: no call yet
  std::uint64_t count = 0;  // elements of this rank's slice; 0: all
};

// A scheme that remembers more adds its member here, and a section to its entry of the table.
// Copying it allocates nothing in the steady state.
struct SchemeState {
  std::uint64_t step = 0;
  SliceLayout layout;          // before what depends on it
  ThresholdForecast forecast;  // of the k-th magnitude (topk; ar-topk: of what this rank elected)
  SmoothedNorm raw_norm;       // of this rank's gradients (ar-topk: score=raw)
  Succession succession;       // of leaders (ar-topk: election=variance-lagged)
  ExdynaControl exdyna;        // partitions and threshold (exdyna, micro)

  // Magnitudes were multiplied by this factor.
  void scale(float factor) {
    forecast.scale(factor);
    raw_norm.scale(double(factor));
    exdyna.scale(double(factor));
  }
};

}  // namespace pith
