// Compressed allreduces in virtual time, with data: what ranks elect decides who sends how much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/algorithm.hpp"
#include "compress/spec.hpp"
#include "core/error.hpp"
#include "transport/sim/sim.hpp"

namespace pith_simulated {

struct CompressedCall {
  pith::Spec spec;        // calls are compressed whatever its `bypass` says
  std::size_t count = 0;  // float32
  pith::Tuning tuning;
  std::vector<int> hosts;  // by rank, any numbers; empty: each has a host of its own
  std::uint64_t seed = 1;
};

// About what seconds_of() needs, in bytes.
double memory_of(const CompressedCall& call, int ranks);

// From the start of a call to the end of its last rank, once thresholds have settled: the mean of
// some steps. Each rank draws gradients of its own, with heavy tails, anew in each step; work on
// vectors and lists costs the simulated cores what reductions do.
pith::Expected<double> seconds_of(const pith::SimConfig& config, const CompressedCall& call);

}  // namespace pith_simulated
