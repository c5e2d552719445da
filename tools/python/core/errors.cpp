#include "errors.hpp"

namespace pith::python {

void raise(pithResult_t result, const std::string& message, const nb::tuple& failed) {
  const nb::object make = nb::module_::import_("pith.errors").attr("exception_of");
  const nb::object exception = make(static_cast<int>(result), message, failed);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

Outcome outcome_of(pithResult_t result) {
  if (result == pithSuccess) return {};
  return {result, pithGetLastError(nullptr)};
}

void check(const Outcome& outcome) {
  if (outcome.result != pithSuccess) raise(outcome.result, outcome.message);
}

}  // namespace pith::python
