// The module pith._core: pith.h for Python.
#include "communicator.hpp"

NB_MODULE(_core, module) {
  // Objects that live as long as the interpreter are no leak.
  nanobind::set_leak_warnings(false);
  pith::python::add_communicator(module);
}
