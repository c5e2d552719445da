// The same training with one scheme of averaging after the other, between hosts that a slow link
// joins: how long each takes to a good accuracy, and what it moves.
#pragma once

#include "tools/demo/board.hpp"
#include "tools/demo/dataset.hpp"
#include "tools/demo/deadline.hpp"
#include "tools/demo/options.hpp"

namespace pith::demo {

// Runs, prints and draws it; a line says why where this machine lends no hosts. False where a
// scheme failed that the library claims to have. On a busy machine schemes are left out, so that
// the demo is over in time.
bool compare_schemes(const Options& options, const Deadline& deadline);

// One rank's part of one scheme, the options' own.
void run_scheme_rank(const Options& options, const Dataset& data, const Board& board);

}  // namespace pith::demo
