// What all parts of a control plane share: options, membership, the time.
#pragma once

#include <cstdint>

#include "control/membership.hpp"

namespace pith {

struct ControlOptions {
  int rank = 0;
  int ranks = 1;
  int fanout = 32;
  double timeout_s = 300;  // 0: never
  double report_s = 0.25;  // seconds without progress until the root hears of a call
  double warn_s = 10;      // and until there is a line in the log
};

struct ControlContext {
  explicit ControlContext(const ControlOptions& given)
      : options(given), membership(given.rank, given.ranks) {}

  const ControlOptions options;
  Membership membership;
  std::uint64_t now_ns = 0;
  bool started = false;

  double since(std::uint64_t then_ns) const { return static_cast<double>(now_ns - then_ns) / 1e9; }
};

}  // namespace pith
