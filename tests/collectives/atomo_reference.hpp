// The plain reference of schemes that draw matrices' singular values: atomo.
#pragma once

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

std::unique_ptr<SchemeReference> atomo_reference(const SparseCase& c);

}  // namespace pith::test
