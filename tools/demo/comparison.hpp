// Repeats the training with one scheme of averaging after another, between hosts whose links
// change: the time of each to a good accuracy, the bytes it sends, and what the library chose when.
#pragma once

#include "tools/demo/board.hpp"
#include "tools/demo/dataset.hpp"
#include "tools/demo/deadline.hpp"
#include "tools/demo/options.hpp"

namespace pith::demo {

// Throws std::runtime_error if a scheme that the user has named cannot be compared, with the
// reason.
void check_schemes(const Options& options);

// Runs, prints and draws the comparison; prints the reason if this machine cannot provide hosts.
// Returns false if a scheme that the library supports failed. On a busy machine schemes are left
// out, so that the demo ends in time.
bool compare_schemes(const Options& options, const Dataset& data, const Deadline& deadline);

// One rank's part of the scheme in the options.
void run_scheme_rank(const Options& options, const Dataset& data, const Board& board);

}  // namespace pith::demo
