// Blocks of memory with the buffer protocol, on which arrays of any library lie.
#pragma once

#include <cstddef>

#include "nanobind/nanobind.h"

namespace pith::python {

// A pith.Memory over memory that `owner` keeps.
nanobind::object memory_of(void* data, std::size_t bytes, nanobind::object owner);

void add_memory(nanobind::module_& module);

}  // namespace pith::python
