// The library's own tests go through its whole table.
#include "tests/collectives/algorithm_conformance.hpp"

namespace pith::test {

std::span<const Algorithm> tested_algorithms() { return algorithms(); }

}  // namespace pith::test
