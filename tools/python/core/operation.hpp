// What a reduction does: "sum" or another name of pithRedOp_t, or a PreMulSum.
//
// All functions need the GIL.
#pragma once

#include "communicator.hpp"
#include "element_type.hpp"
#include "nanobind/nanobind.h"
#include "pith/pith.h"

namespace pith::python {

// Multiplies a rank's input by the scalar before it is added.
struct PreMulSum {
  nb::object scalar;
};

// An operation of one call. Raises if it is unknown, or not defined for the elements.
class Operation {
 public:
  Operation(nb::handle op, const ElementType& type, pithComm_t comm);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  operator pithRedOp_t() const { return op_; }  // NOLINT(google-explicit-constructor)

 private:
  void make(const PreMulSum& op, pithDataType_t type, pithComm_t comm);

  pithRedOp_t op_ = pithSum;
  pithComm_t made_for_ = nullptr;
};

void add_operation(nb::module_& module);

}  // namespace pith::python
