// The main function of a perf program, which itself only describes its collective.
#pragma once

#include "frame/collective.hpp"

namespace pith_perf {

// Command line, ranks, timing, check, table. The exit status is not 0 if data was wrong.
int perf_main(int argc, char** argv, const Collective& collective);

}  // namespace pith_perf
