// The plain reference of arc-topk.
#pragma once

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

// Null where values are rounded.
std::unique_ptr<SchemeReference> sketched_reference(const SparseCase& c);

}  // namespace pith::test
