#include "reduction.hpp"

#include <c10/util/Exception.h>

#include "dtypes.hpp"
#include "errors.hpp"

namespace pith_torch {

using Kind = c10d::ReduceOp::RedOpType;

namespace {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::SUM:
      return "SUM";
    case Kind::AVG:
      return "AVG";
    case Kind::PRODUCT:
      return "PRODUCT";
    case Kind::MIN:
      return "MIN";
    case Kind::MAX:
      return "MAX";
    case Kind::BAND:
      return "BAND";
    case Kind::BOR:
      return "BOR";
    case Kind::BXOR:
      return "BXOR";
    case Kind::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "UNUSED";
  }
}

[[noreturn]] void refuse(Kind kind, at::ScalarType type) {
  TORCH_CHECK_VALUE(false, "pith has no ReduceOp.", name_of(kind), " for tensors of type ",
                    c10::toString(type));
}

bool is_bitwise(Kind kind) { return kind == Kind::BAND || kind == Kind::BOR || kind == Kind::BXOR; }

pithRedOp_t operation_of(Kind kind) {
  switch (kind) {
    case Kind::BAND:
      return pithBand;
    case Kind::BOR:
      return pithBor;
    case Kind::BXOR:
      return pithBxor;
    case Kind::AVG:
      return pithAvg;
    case Kind::PRODUCT:
      return pithProd;
    case Kind::MIN:
      return pithMin;
    case Kind::MAX:
      return pithMax;
    default:
      return pithSum;
  }
}

// Types that libpith lacks are reduced in a wider one; the low bits of integers are the same.
at::ScalarType widened(at::ScalarType type) {
  if (type == at::kComplexHalf) return at::kComplexFloat;
  const bool narrow = type == at::kShort || type == at::kUInt16;
  return narrow ? at::kInt : type;
}

}  // namespace

Reduction::Reduction(at::ScalarType type, const c10d::ReduceOp& op)
    : given_(type), converted_(widened(type)), kind_(op) {
  if (type == at::kBool) {
    choose_for_bool(op);
  } else {
    choose(op);
  }
  const std::optional<pithDataType_t> known = pith_type(converted_);
  if (!known) refuse(kind_, given_);
  type_ = *known;
}

void Reduction::choose(const c10d::ReduceOp& op) {
  if (is_bitwise(kind_) && !c10::isIntegralType(given_, false)) refuse(kind_, given_);
  const bool orders = kind_ == Kind::MIN || kind_ == Kind::MAX;
  if (orders && c10::isComplexType(given_)) refuse(kind_, given_);
  if (kind_ == Kind::PREMUL_SUM) return choose_factor(op);
  op_ = operation_of(kind_);
}

// As NCCL's backend: a sum is "any", a product "all".
void Reduction::choose_for_bool(const c10d::ReduceOp&) {
  converted_ = at::kByte;
  switch (kind_) {
    case Kind::SUM:
    case Kind::MAX:
    case Kind::BOR:
      op_ = pithMax;
      return;
    case Kind::PRODUCT:
    case Kind::MIN:
    case Kind::BAND:
      op_ = pithMin;
      return;
    case Kind::BXOR:
      op_ = pithLxor;
      return;
    default:
      refuse(kind_, given_);
  }
}

void Reduction::choose_factor(const c10d::ReduceOp& op) {
  if (c10::isIntegralType(converted_, true)) refuse(kind_, given_);
  const auto* given = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(given,
                    "ReduceOp.PREMUL_SUM has no factor: make it by "
                    "torch.distributed._make_nccl_premul_sum");
  const at::Tensor factor = given->tensor_factor.defined()
                                ? given->tensor_factor.reshape({1})
                                : at::full({1}, given->double_factor, at::kDouble);
  TORCH_CHECK_VALUE(!factor.is_complex() || c10::isComplexType(converted_),
                    "ReduceOp.PREMUL_SUM has a complex factor, and the tensor is of type ", given_,
                    "; expected a complex tensor (torch.distributed.all_reduce passes its parts)");
  factor_ = factor.to(at::kCPU, converted_);
}

at::Tensor Reduction::operand(const at::Tensor& tensor) const {
  const bool dense = tensor.layout() == at::kStrided;
  if (converted_ == given_ && dense && is_plain(tensor)) return alias_of(tensor);
  at::Tensor seen = tensor.detach();
  if (given_ == at::kBool) {
    seen = seen.view(at::kByte);
  }
  // A conjugate or a view of parts is a lazy view, whose memory is something else.
  return seen.resolve_conj().resolve_neg().to(converted_).contiguous();
}

void Reduction::store(const at::Tensor& result, const at::Tensor& target) const {
  if (result.data_ptr() == target.data_ptr() && target.is_contiguous()) return;
  target.detach().copy_(result.view(target.sizes()));
}

Reduction::Operation::Operation(const Reduction& reduction, pithComm_t comm) : op_(reduction.op_) {
  if (!reduction.factor_) return;
  check(pithRedOpCreatePreMulSum(&op_, reduction.factor_->data_ptr(), reduction.type_,
                                 pithScalarHostImmediate, comm));
  made_for_ = comm;
}

Reduction::Operation::~Operation() {
  if (made_for_) pithRedOpDestroy(op_, made_for_);
}

}  // namespace pith_torch
