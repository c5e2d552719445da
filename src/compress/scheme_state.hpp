// What a call changes in a compressor besides its accumulator. It is small, so it is kept with each
// call for undoing calls that other ranks did not complete, and it is saved.
#pragma once

#include <cstdint>

#include "compress/density_control.hpp"
#include "compress/election.hpp"
#include "compress/exdyna_control.hpp"
#include "compress/gossip/memories.hpp"
#include "compress/low_rank/factors.hpp"
#include "compress/threshold_forecast.hpp"
#include "compress/thresholds/stage_control.hpp"

namespace pith {

// With hierarchy=host: the slice that the state belongs to.
struct SliceLayout {
  std::uint64_t hosts = 0;  // hash of which ranks share a host; 0: no call yet
  std::uint64_t count = 0;  // elements of this rank's slice; 0: all
};

// A scheme with further state adds a member here and a section to its table entry. Copying
// allocates nothing in the steady state.
struct SchemeState {
  std::uint64_t step = 0;
  SliceLayout layout;              // before the members that depend on it
  DensityControl density_control;  // density=auto
  BypassControl bypass_control;    // not saved: times are measured anew
  ThresholdForecast forecast;  // of the k-th magnitude (topk; ar-topk: of what this rank elected)
  SmoothedNorm raw_norm;       // of this rank's gradients (ar-topk: score=raw)
  Succession succession;       // of leaders (ar-topk: election=variance-lagged)
  ExdynaControl exdyna;        // partitions and threshold (exdyna, micro)
  LowRankState low_rank;       // shapes (arc-topk), and right factors (powersgd)
  StageControl stages;         // of the fitted law (sidco)
  GossipMemories gossip;       // of parameters (choco)

  // Magnitudes were multiplied by this factor.
  void scale(float factor) {
    forecast.scale(factor);
    raw_norm.scale(double(factor));
    exdyna.scale(double(factor));
    gossip.scale(factor);
  }
};

}  // namespace pith
