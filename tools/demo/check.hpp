// Turns Pith's errors into exceptions.
#pragma once

#include "pith/pith.h"

namespace pith::demo {

// Throws std::runtime_error with Pith's message unless `result` is pithSuccess.
void check(pithResult_t result, const char* call, pithComm_t comm = nullptr);

}  // namespace pith::demo
