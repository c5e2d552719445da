// The plain reference of schemes that send matrices as factors of low rank: powersgd.
#pragma once

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

std::unique_ptr<SchemeReference> low_rank_reference(const SparseCase& c);

}  // namespace pith::test
