// The plain reference of schemes that send every element in few bits: int8, fp8, qsgd,
// terngrad, natural, sign, efsign, onebit, 3lc.
#pragma once

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

std::unique_ptr<SchemeReference> coded_reference(const SparseCase& c);

}  // namespace pith::test
