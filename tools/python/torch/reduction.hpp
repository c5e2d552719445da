// How a reduction of PyTorch is made from what libpith can do.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <ATen/ATen.h>

#include <optional>

#include "pith/pith.h"

namespace pith_torch {

// The calls see `operand(tensor)`: the tensor's own memory if it is contiguous and libpith knows
// its type, else a copy.
class Reduction {
 public:
  // Throws if PyTorch defines no such reduction, or pith does not have it.
  Reduction(at::ScalarType type, const c10d::ReduceOp& op);

  pithDataType_t type() const { return type_; }
  at::Tensor operand(const at::Tensor& tensor) const;
  // Writes a result of the calls to where it belongs, unless it is there already.
  void store(const at::Tensor& result, const at::Tensor& target) const;

  // The operation on `comm`, as long as this object lives.
  class Operation {
   public:
    Operation(const Reduction& reduction, pithComm_t comm);
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    operator pithRedOp_t() const { return op_; }

   private:
    pithRedOp_t op_;
    pithComm_t made_for_ = nullptr;
  };

 private:
  void choose(const c10d::ReduceOp& op);
  void choose_for_bool(const c10d::ReduceOp& op);
  void choose_factor(const c10d::ReduceOp& op);

  at::ScalarType given_;
  at::ScalarType converted_;  // of operands
  c10d::ReduceOp::RedOpType kind_;
  pithDataType_t type_ = pithUint8;
  pithRedOp_t op_ = pithSum;
  std::optional<at::Tensor> factor_;  // of type `converted_`, one element
};

}  // namespace pith_torch
