// The plain reference of schemes whose k elements all ranks know without a message: randomk.
#pragma once

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

// Null where values are rounded.
std::unique_ptr<SchemeReference> common_reference(const SparseCase& c);

}  // namespace pith::test
