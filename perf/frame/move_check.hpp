// Checks calls that move coded values (pithAllGatherCompressed and its like): against the plain
// call with the same values in float64, from which each may be off by what coding it loses. What
// that is, the rank that codes a value knows, and tells by a second plain call.
#pragma once

#include <pith/pith.h>

#include <span>

#include "core/sparse/coding.hpp"
#include "frame/collective.hpp"
#include "frame/elections.hpp"
#include "frame/errors.hpp"
#include "frame/team.hpp"

namespace pith_perf {

class MoveCheck {
 public:
  MoveCheck(const pith::Coding& coding, const Collective& collective, const Counts& counts)
      : coding_(coding), collective_(collective), counts_(counts) {}

  // `given` and `results`: one float32 vector per rank of this thread, exact copies of the call's
  // input and output. `args`: type, operation and root of the call. Collective. Returns the errors
  // of this thread's ranks.
  Errors check(const Vectors& given, const Vectors& results, const CallArgs& args,
               const Team& team) const;

 private:
  using Doubles = std::vector<std::vector<double>>;

  Doubles moved(const Doubles& sent, CallArgs args, const Team& team) const;

  pith::Coding coding_;
  const Collective& collective_;
  Counts counts_;
};

}  // namespace pith_perf
