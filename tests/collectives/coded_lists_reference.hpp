// The plain reference of top-k whose lists have coded values (values=int8, int4). Which values
// share a block depends on how a list is cut into messages, which no definition says. So what a
// call delivers and keeps is held against bounds, and both together against what there was.
#pragma once

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

std::unique_ptr<SchemeReference> coded_lists_reference(const SparseCase& c);

}  // namespace pith::test
