#include "tensor_lists.hpp"

#include <c10/util/Exception.h>

#include "dtypes.hpp"

namespace pith_torch {

namespace {

bool follow_each_other(const std::vector<at::Tensor>& tensors) {
  const auto* next = static_cast<const std::byte*>(tensors[0].data_ptr());
  for (const at::Tensor& tensor : tensors) {
    if (!is_plain(tensor)) return false;
    if (tensor.scalar_type() != tensors[0].scalar_type()) return false;
    if (tensor.data_ptr() != next) return false;
    if (!tensor.storage().is_alias_of(tensors[0].storage())) return false;
    next += tensor.nbytes();
  }
  return true;
}

int64_t count_of(const std::vector<at::Tensor>& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

}  // namespace

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* call) {
  TORCH_CHECK_VALUE(tensors.size() == 1, call, ": expected one tensor, got ", tensors.size());
  return tensors[0];
}

void check_alike(const std::vector<at::Tensor>& tensors, int size, const at::Tensor& like,
                 const char* call) {
  TORCH_CHECK_VALUE(static_cast<int>(tensors.size()) == size, call, ": expected ", size,
                    " tensors, one for each rank, got ", tensors.size());
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.numel() == like.numel() && tensor.scalar_type() == like.scalar_type(),
                      call, ": expected tensors of ", like.numel(), " elements of type ",
                      c10::toString(like.scalar_type()), ", got one of ", tensor.numel(), " of ",
                      c10::toString(tensor.scalar_type()));
  }
}

void check_uneven(const std::vector<at::Tensor>& tensors, int size, const at::Tensor& like,
                  int rank, const char* call) {
  TORCH_CHECK_VALUE(static_cast<int>(tensors.size()) == size, call, ": expected ", size,
                    " tensors, one for each rank, got ", tensors.size());
  check_alike({tensors[static_cast<std::size_t>(rank)]}, 1, like, call);
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.scalar_type() == like.scalar_type(), call,
                      ": expected tensors of type ", c10::toString(like.scalar_type()),
                      ", got one of ", c10::toString(tensor.scalar_type()));
  }
}

bool all_same_count(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != tensors[0].numel()) return false;
  }
  return true;
}

std::vector<std::size_t> counts_of_each(const std::vector<at::Tensor>& tensors) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors) {
    counts.push_back(static_cast<std::size_t>(tensor.numel()));
  }
  return counts;
}

std::vector<std::size_t> bytes_of_each(const std::vector<at::Tensor>& tensors) {
  std::vector<std::size_t> bytes;
  for (const at::Tensor& tensor : tensors) bytes.push_back(bytes_of(tensor));
  return bytes;
}

at::Tensor flat_memory(const std::vector<at::Tensor>& tensors) {
  const int64_t count = count_of(tensors);
  const at::Tensor first = tensors[0].detach();
  if (count > 0 && follow_each_other(tensors)) return first.as_strided({count}, {1});
  return at::empty({count}, first.options().memory_format(std::nullopt));
}

at::Tensor flattened(const std::vector<at::Tensor>& tensors) {
  const at::Tensor memory = flat_memory(tensors);
  if (memory.numel() == 0 || memory.data_ptr() == tensors[0].data_ptr()) return memory;
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    memory.narrow(0, offset, tensor.numel()).copy_(tensor.detach().reshape({-1}));
    offset += tensor.numel();
  }
  return memory;
}

void unflatten(const at::Tensor& memory, const std::vector<at::Tensor>& tensors) {
  if (memory.numel() == 0 || memory.data_ptr() == tensors[0].data_ptr()) return;
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    unpack(memory.narrow(0, offset, tensor.numel()), tensor);
    offset += tensor.numel();
  }
}

}  // namespace pith_torch
