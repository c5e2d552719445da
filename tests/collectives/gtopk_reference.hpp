// gtopk on whole vectors, for all ranks at once.
#pragma once

#include <memory>

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

std::unique_ptr<SchemeReference> gtopk_reference(const SparseCase& c);

}  // namespace pith::test
