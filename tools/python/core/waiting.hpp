// Calls that may wait: the GIL is released meanwhile.
#pragma once

#include <utility>

#include "errors.hpp"
#include "nanobind/nanobind.h"

namespace pith::python {

// Runs `call`, which returns a pithResult_t and touches no Python object. If the handler of a
// signal has raised meanwhile, that exception is raised.
template <class Call>
Outcome without_gil(Call call) {
  Outcome outcome;
  {
    const nb::gil_scoped_release released;
    outcome = outcome_of(call());
  }
  return outcome;
}

}  // namespace pith::python
