// Tensors as memory that libpith takes.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "pith/pith.h"

namespace pith_torch {

// The type in which libpith computes; none: it can only move such elements.
std::optional<pithDataType_t> pith_type(at::ScalarType type);

// Bytes of a contiguous tensor.
std::size_t bytes_of(const at::Tensor& tensor);
// Whether its memory holds its elements one after the other, as they are.
bool is_plain(const at::Tensor& tensor);
// A tensor of its own with the same memory, which it keeps whatever becomes of the other.
at::Tensor alias_of(const at::Tensor& tensor);
// An alias of the tensor, or a copy of it that is plain. Throws if it is sparse or quantized.
at::Tensor packed(const at::Tensor& tensor);
// Copies what a call has written to `memory`, unless that is the tensor's own.
void unpack(const at::Tensor& memory, const at::Tensor& tensor);

// The current stream of the tensor's device; null for the host.
pithStream_t stream_of(const at::Tensor& tensor);

}  // namespace pith_torch
