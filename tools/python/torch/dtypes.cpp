#include "dtypes.hpp"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace pith_torch {

std::optional<pithDataType_t> pith_type(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return pithInt8;
    case at::kByte:
      return pithUint8;
    case at::kInt:
      return pithInt32;
    case at::kUInt32:
      return pithUint32;
    case at::kLong:
      return pithInt64;
    case at::kUInt64:
      return pithUint64;
    case at::kHalf:
      return pithFloat16;
    case at::kFloat:
      return pithFloat32;
    case at::kDouble:
      return pithFloat64;
    case at::kBFloat16:
      return pithBfloat16;
    case at::kFloat8_e4m3fn:
      return pithFloat8e4m3;
    case at::kFloat8_e5m2:
      return pithFloat8e5m2;
    case at::kComplexFloat:
      return pithComplex64;
    case at::kComplexDouble:
      return pithComplex128;
    default:
      return std::nullopt;
  }
}

std::size_t bytes_of(const at::Tensor& tensor) { return tensor.nbytes(); }

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// As detach(), without its way through PyTorch's dispatcher.
at::Tensor alias_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(), true));
}

at::Tensor packed(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && !tensor.is_quantized(),
                    "pith takes dense tensors, got one of layout ", tensor.layout(), " and type ",
                    c10::toString(tensor.scalar_type()));
  if (is_plain(tensor)) return alias_of(tensor);
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

void unpack(const at::Tensor& memory, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  if (memory.data_ptr() == tensor.data_ptr() && tensor.is_contiguous()) return;
  tensor.detach().copy_(memory.view(tensor.sizes()));
}

pithStream_t stream_of(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return guard.getStream(tensor.device()).native_handle();
}

}  // namespace pith_torch
