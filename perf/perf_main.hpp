// A perf program is a description of its collective; all else is here.
#pragma once

#include "frame/collective.hpp"

namespace pith_perf {

// The program: command line, ranks, timing, check, table. Its exit status is not 0 where data were
// wrong.
int perf_main(int argc, char** argv, const Collective& collective);

}  // namespace pith_perf
