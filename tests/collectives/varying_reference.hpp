// The plain reference of schemes whose messages are as long as the values make them: bounded,
// lossless.
#pragma once

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

std::unique_ptr<SchemeReference> varying_reference(const SparseCase& c);

}  // namespace pith::test
