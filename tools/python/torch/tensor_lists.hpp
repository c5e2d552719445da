// Lists of tensors as one memory, in which one follows the other.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <vector>

namespace pith_torch {

// The only element of the list.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* call);
// Throws unless the list has `size` tensors of the count and type of `like`.
void check_alike(const std::vector<at::Tensor>& tensors, int size, const at::Tensor& like,
                 const char* call);
// The same for tensors that differ in count: that of `rank` has that of `like`.
void check_uneven(const std::vector<at::Tensor>& tensors, int size, const at::Tensor& like,
                  int rank, const char* call);
bool all_same_count(const std::vector<at::Tensor>& tensors);
// By rank, as arrays of the C API.
std::vector<std::size_t> counts_of_each(const std::vector<at::Tensor>& tensors);
std::vector<std::size_t> bytes_of_each(const std::vector<at::Tensor>& tensors);

// Memory for all elements of the list: that of the tensors themselves if they follow each other.
// Its contents are undefined, except for tensors that follow each other.
at::Tensor flat_memory(const std::vector<at::Tensor>& tensors);
// The same, with the elements of the tensors.
at::Tensor flattened(const std::vector<at::Tensor>& tensors);
// Copies the memory of flat_memory() back, unless it is that of the tensors.
void unflatten(const at::Tensor& memory, const std::vector<at::Tensor>& tensors);

}  // namespace pith_torch
