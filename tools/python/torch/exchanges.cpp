// Gather, scatter and all-to-all of Collectives.
#include <cstring>

#include "collectives.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "tensor_lists.hpp"

namespace pith_torch {

using c10d::OpType;

WorkReturned Collectives::gather(TensorLists& outputs, TensorList& inputs,
                                 const c10d::GatherOptions& opts) {
  const at::Tensor input = only(inputs, "gather");
  check_root(opts.rootRank, "gather");
  const int root = static_cast<int>(opts.rootRank);
  const at::Tensor from = packed(input);
  Call call{{OpType::GATHER, "pith:gather", inputs, {}}, {}, {}, false, input};
  at::Tensor memory;
  if (root == rank_) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "gather: expected one list of outputs at the root");
    const TensorList to = outputs[0];
    check_alike(to, size_, input, "gather");
    memory = flat_memory(to);
    call.facts.outputs = outputs;
    call.finish = [memory, to] { unflatten(memory, to); };
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(),
                      "gather: expected no outputs on ranks other than the root");
  }
  call.issue = [from, memory, root](pithComm_t comm, pithStream_t stream) {
    void* to = memory.defined() ? memory.data_ptr() : nullptr;
    check(pithGather(from.data_ptr(), to, bytes_of(from), pithUint8, root, comm, stream));
  };
  return run(std::move(call), opts.asyncOp);
}

WorkReturned Collectives::scatter(TensorList& outputs, TensorLists& inputs,
                                  const c10d::ScatterOptions& opts) {
  const at::Tensor output = only(outputs, "scatter");
  check_root(opts.rootRank, "scatter");
  const int root = static_cast<int>(opts.rootRank);
  const at::Tensor to = packed(output);
  Call call{{OpType::SCATTER, "pith:scatter", {}, {outputs}}, {}, {}, false, output};
  at::Tensor memory;
  if (root == rank_) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "scatter: expected one list of inputs at the root");
    check_alike(inputs[0], size_, output, "scatter");
    memory = flattened(inputs[0]);
    call.facts.inputs = inputs[0];
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(),
                      "scatter: expected no inputs on ranks other than the root");
  }
  call.issue = [to, memory, root](pithComm_t comm, pithStream_t stream) {
    const void* from = memory.defined() ? memory.data_ptr() : nullptr;
    check(pithScatter(from, to.data_ptr(), bytes_of(to), pithUint8, root, comm, stream));
  };
  call.finish = [to, output] { unpack(to, output); };
  return run(std::move(call), opts.asyncOp);
}

namespace {

// Sends inputs[i] to rank i and receives outputs[i] from it. An empty part is no message. The rank
// itself needs none either, but on a device a copy must keep to the stream.
void exchange(const TensorList& outputs, const TensorList& inputs, pithComm_t comm,
              pithStream_t stream) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& from = inputs[i];
    const at::Tensor& to = outputs[i];
    const int peer = static_cast<int>(i);
    if (bytes_of(from) > 0) {
      check(pithSend(from.data_ptr(), bytes_of(from), pithUint8, peer, comm, stream));
    }
    if (bytes_of(to) > 0) {
      check(pithRecv(to.data_ptr(), bytes_of(to), pithUint8, peer, comm, stream));
    }
  }
}

}  // namespace

WorkReturned Collectives::alltoall(TensorList& outputs, TensorList& inputs,
                                   const c10d::AllToAllOptions& opts) {
  const auto size = static_cast<std::size_t>(size_);
  TORCH_CHECK_VALUE(outputs.size() == size && inputs.size() == size, "all_to_all: expected ", size_,
                    " inputs and outputs, got ", inputs.size(), " and ", outputs.size());
  TensorList from;
  TensorList to;
  for (std::size_t i = 0; i < size; ++i) {
    from.push_back(packed(inputs[i]));
    to.push_back(packed(outputs[i]));
  }
  const auto rank = static_cast<std::size_t>(rank_);
  TORCH_CHECK_VALUE(bytes_of(from[rank]) == bytes_of(to[rank]), "all_to_all: rank ", rank_,
                    " sends itself ", bytes_of(from[rank]), " bytes and expects ",
                    bytes_of(to[rank]));
  const auto finish = [to, outputs] {
    for (std::size_t i = 0; i < to.size(); ++i) unpack(to[i], outputs[i]);
  };
  return run(
      {{OpType::ALLTOALL, "pith:all_to_all", inputs, {outputs}},
       [from, to](pithComm_t comm, pithStream_t stream) { exchange(to, from, comm, stream); },
       finish,
       true,
       outputs[0]},
      opts.asyncOp);
}

namespace {

// The parts of a packed tensor along its first dimension. No sizes: all parts are equal.
TensorList parts_of(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks,
                    const char* name) {
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  TORCH_CHECK_VALUE(!sizes.empty() || rows % ranks == 0, "all_to_all_single: the ", name, " has ",
                    rows, " rows, expected a multiple of the ", ranks, " ranks");
  TORCH_CHECK_VALUE(sizes.empty() || static_cast<int>(sizes.size()) == ranks,
                    "all_to_all_single: ", name, "_split_sizes has ", sizes.size(),
                    " entries, expected ", ranks);
  TensorList parts;
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t length = sizes.empty() ? rows / ranks : sizes[static_cast<std::size_t>(rank)];
    TORCH_CHECK_VALUE(length >= 0 && begin + length <= rows, "all_to_all_single: ", name,
                      "_split_sizes ask for more than the ", rows, " rows");
    parts.push_back(tensor.narrow(0, begin, length));
    begin += length;
  }
  TORCH_CHECK_VALUE(begin == rows, "all_to_all_single: ", name, "_split_sizes have a sum of ",
                    begin, ", expected ", rows);
  return parts;
}

}  // namespace

WorkReturned Collectives::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& opts) {
  at::Tensor from = packed(input);
  const at::Tensor to = packed(output);
  if (from.is_alias_of(to)) from = from.clone();
  const TensorList inputs = parts_of(from, input_splits, size_, "input");
  const TensorList outputs = parts_of(to, output_splits, size_, "output");
  Call call{{OpType::ALLTOALL_BASE, "pith:all_to_all", {input}, {{output}}}, {}, {}, false, output};
  call.finish = [to, target = output] { unpack(to, target); };
  const bool equal = input_splits.empty() && output_splits.empty();
  if (equal) {
    TORCH_CHECK_VALUE(bytes_of(from) == bytes_of(to), "all_to_all_single: the input has ",
                      bytes_of(from), " bytes, the output ", bytes_of(to),
                      ", expected the same without split sizes");
    call.issue = [from, to, size = size_](pithComm_t comm, pithStream_t stream) {
      check(pithAlltoAll(from.data_ptr(), to.data_ptr(),
                         bytes_of(from) / static_cast<std::size_t>(size), pithUint8, comm, stream));
    };
  } else {
    const std::vector<std::size_t> leaving = bytes_of_each(inputs);
    const std::vector<std::size_t> arriving = bytes_of_each(outputs);
    const auto rank = static_cast<std::size_t>(rank_);
    TORCH_CHECK_VALUE(leaving[rank] == arriving[rank], "all_to_all_single: rank ", rank_,
                      " sends itself ", leaving[rank], " bytes and expects ", arriving[rank]);
    call.issue = [from, to, leaving, arriving](pithComm_t comm, pithStream_t stream) {
      check(pithAlltoAllV(from.data_ptr(), leaving.data(), nullptr, to.data_ptr(), arriving.data(),
                          nullptr, pithUint8, comm, stream));
    };
  }
  return run(std::move(call), opts.asyncOp);
}

}  // namespace pith_torch
