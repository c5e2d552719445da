// Plain references of the schemes in which every rank elects by a rule of its own.
#pragma once

#include <memory>

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

std::unique_ptr<SchemeReference> threshold_reference(const SparseCase& c);
std::unique_ptr<SchemeReference> sidco_reference(const SparseCase& c);
std::unique_ptr<SchemeReference> wangni_reference(const SparseCase& c);
std::unique_ptr<SchemeReference> adaptive_reference(const SparseCase& c);

}  // namespace pith::test
