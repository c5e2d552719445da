// Sums, broadcasts and gathers of Collectives.
#include "collectives.hpp"

#include "dtypes.hpp"
#include "errors.hpp"
#include "tensor_lists.hpp"

namespace pith_torch {

using c10d::OpType;

namespace {

std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

void all_reduce(const Reduction& reduction, const at::Tensor& memory, pithComm_t comm,
                pithStream_t stream) {
  const Reduction::Operation op(reduction, comm);
  check(pithAllReduce(memory.data_ptr(), memory.data_ptr(), count_of(memory), reduction.type(), op,
                      comm, stream));
}

void all_gather(const at::Tensor& from, const at::Tensor& to, pithComm_t comm,
                pithStream_t stream) {
  check(pithAllGather(from.data_ptr(), to.data_ptr(), bytes_of(from), pithUint8, comm, stream));
}

}  // namespace

WorkReturned Collectives::broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor tensor = only(tensors, "broadcast");
  check_root(opts.rootRank, "broadcast");
  const at::Tensor memory = packed(tensor);
  const int root = static_cast<int>(opts.rootRank);
  return run(
      {{OpType::BROADCAST, "pith:broadcast", tensors, {tensors}},
       [memory, root](pithComm_t comm, pithStream_t stream) {
         check(pithBcast(memory.data_ptr(), bytes_of(memory), pithUint8, root, comm, stream));
       },
       [memory, tensor] { unpack(memory, tensor); },
       false,
       tensor},
      opts.asyncOp);
}

WorkReturned Collectives::allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor tensor = only(tensors, "all_reduce");
  if (tensor.is_sparse()) return allreduce_sparse(tensors, opts);
  const Reduction reduction(tensor.scalar_type(), opts.reduceOp);
  const at::Tensor operand = reduction.operand(tensor);
  return run({{OpType::ALLREDUCE, "pith:all_reduce", tensors, {tensors}},
              [reduction, operand](pithComm_t comm, pithStream_t stream) {
                all_reduce(reduction, operand, comm, stream);
              },
              [reduction, operand, tensor] { reduction.store(operand, tensor); },
              false,
              tensor},
             opts.asyncOp);
}

WorkReturned Collectives::allreduce_coalesced(TensorList& tensors,
                                              const c10d::AllreduceCoalescedOptions& opts) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced: expected at least one tensor");
  std::vector<Reduction> reductions;
  TensorList operands;
  for (const at::Tensor& tensor : tensors) {
    reductions.emplace_back(tensor.scalar_type(), opts.reduceOp);
    operands.push_back(reductions.back().operand(tensor));
  }
  const auto issue = [reductions, operands](pithComm_t comm, pithStream_t stream) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      all_reduce(reductions[i], operands[i], comm, stream);
    }
  };
  const auto finish = [reductions, operands, tensors] {
    for (std::size_t i = 0; i < tensors.size(); ++i) reductions[i].store(operands[i], tensors[i]);
  };
  return run({{OpType::ALLREDUCE_COALESCED, "pith:all_reduce", tensors, {tensors}},
              issue,
              finish,
              true,
              tensors[0]},
             opts.asyncOp);
}

WorkReturned Collectives::reduce(TensorList& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor tensor = only(tensors, "reduce");
  check_root(opts.rootRank, "reduce");
  const int root = static_cast<int>(opts.rootRank);
  const bool here = root == rank_;
  const Reduction reduction(tensor.scalar_type(), opts.reduceOp);
  const at::Tensor operand = reduction.operand(tensor);
  Call call{{OpType::REDUCE, "pith:reduce", tensors, {tensors}}, {}, {}, false, tensor};
  call.issue = [reduction, operand, root](pithComm_t comm, pithStream_t stream) {
    const Reduction::Operation op(reduction, comm);
    check(pithReduce(operand.data_ptr(), operand.data_ptr(), count_of(operand), reduction.type(),
                     op, root, comm, stream));
  };
  if (here) call.finish = [reduction, operand, tensor] { reduction.store(operand, tensor); };
  return run(std::move(call), opts.asyncOp);
}

namespace {

// `counts`: elements of the parts of `input`, by rank, if they differ.
Call reduce_scatter_call(const at::Tensor& output, const at::Tensor& input,
                         const Reduction& reduction, const std::vector<std::size_t>& counts = {}) {
  Call call;
  const at::Tensor from = reduction.operand(input);
  const at::Tensor to = reduction.operand(output);
  call.issue = [reduction, from, to, counts](pithComm_t comm, pithStream_t stream) {
    const Reduction::Operation op(reduction, comm);
    check(counts.empty() ? pithReduceScatter(from.data_ptr(), to.data_ptr(), count_of(to),
                                             reduction.type(), op, comm, stream)
                         : pithReduceScatterV(from.data_ptr(), to.data_ptr(), counts.data(),
                                              reduction.type(), op, comm, stream));
  };
  call.finish = [reduction, to, output] { reduction.store(to, output); };
  return call;
}

void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* call) {
  TORCH_CHECK_VALUE(whole.scalar_type() == part.scalar_type(), call,
                    ": input and output have the types ", c10::toString(part.scalar_type()),
                    " and ", c10::toString(whole.scalar_type()), ", expected the same");
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, call, ": the long tensor has ",
                    whole.numel(), " elements, expected ", size, " times ", part.numel());
}

}  // namespace

WorkReturned Collectives::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& opts) {
  check_parts(input, output, size_, "reduce_scatter_tensor");
  const Reduction reduction(input.scalar_type(), opts.reduceOp);
  Call call = reduce_scatter_call(output, input, reduction);
  call.facts = {OpType::_REDUCE_SCATTER_BASE, "pith:reduce_scatter", {input}, {{output}}};
  call.where = output;
  return run(std::move(call), opts.asyncOp);
}

WorkReturned Collectives::reduce_scatter(TensorList& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  const at::Tensor output = only(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1, "reduce_scatter: expected one list of inputs");
  check_uneven(inputs[0], size_, output, rank_, "reduce_scatter");
  const Reduction reduction(output.scalar_type(), opts.reduceOp);
  const at::Tensor input = flattened(inputs[0]);
  Call call = all_same_count(inputs[0])
                  ? reduce_scatter_call(output, input, reduction)
                  : reduce_scatter_call(output, input, reduction, counts_of_each(inputs[0]));
  call.facts = {OpType::REDUCE_SCATTER, "pith:reduce_scatter", inputs[0], {outputs}};
  call.where = output;
  return run(std::move(call), opts.asyncOp);
}

WorkReturned Collectives::reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK_VALUE(!outputs.empty() && outputs.size() == inputs.size(),
                    "reduce_scatter_tensor_coalesced: got ", inputs.size(), " inputs and ",
                    outputs.size(), " outputs");
  std::vector<Call> parts;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_parts(inputs[i], outputs[i], size_, "reduce_scatter_tensor_coalesced");
    const Reduction reduction(inputs[i].scalar_type(), opts.reduceOp);
    parts.push_back(reduce_scatter_call(outputs[i], inputs[i], reduction));
  }
  const auto issue = [parts](pithComm_t comm, pithStream_t stream) {
    for (const Call& part : parts) part.issue(comm, stream);
  };
  const auto finish = [parts] {
    for (const Call& part : parts) part.finish();
  };
  return run({{OpType::REDUCE_SCATTER_TENSOR_COALESCED, "pith:reduce_scatter", inputs, {outputs}},
              issue,
              finish,
              true,
              outputs[0]},
             opts.asyncOp);
}

WorkReturned Collectives::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& opts) {
  check_parts(output, input, size_, "all_gather_into_tensor");
  const at::Tensor from = packed(input);
  const at::Tensor to = packed(output);
  return run(
      {{OpType::_ALLGATHER_BASE, "pith:all_gather", {input}, {{output}}},
       [from, to](pithComm_t comm, pithStream_t stream) { all_gather(from, to, comm, stream); },
       [to, output] { unpack(to, output); },
       false,
       output},
      opts.asyncOp);
}

WorkReturned Collectives::allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(!outputs.empty() && outputs.size() == inputs.size(),
                    "all_gather_into_tensor_coalesced: got ", inputs.size(), " inputs and ",
                    outputs.size(), " outputs");
  TensorList from;
  TensorList to;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_parts(outputs[i], inputs[i], size_, "all_gather_into_tensor_coalesced");
    from.push_back(packed(inputs[i]));
    to.push_back(packed(outputs[i]));
  }
  const auto issue = [from, to](pithComm_t comm, pithStream_t stream) {
    for (std::size_t i = 0; i < from.size(); ++i) all_gather(from[i], to[i], comm, stream);
  };
  const auto finish = [to, outputs] {
    for (std::size_t i = 0; i < to.size(); ++i) unpack(to[i], outputs[i]);
  };
  return run(
      {{OpType::COALESCED, "pith:all_gather", inputs, {outputs}}, issue, finish, true, outputs[0]},
      opts.asyncOp);
}

WorkReturned Collectives::allgather(TensorLists& outputs, TensorList& inputs,
                                    const c10d::AllgatherOptions& opts) {
  const at::Tensor input = only(inputs, "all_gather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "all_gather: expected one list of outputs");
  const TensorList& to = outputs[0];
  TORCH_CHECK_VALUE(static_cast<int>(to.size()) == size_, "all_gather: expected ", size_,
                    " outputs, got ", to.size());
  check_alike({input}, 1, to[static_cast<std::size_t>(rank_)], "all_gather");
  const at::Tensor from = packed(input);
  const at::Tensor memory = flat_memory(to);
  Call call{{OpType::ALLGATHER, "pith:all_gather", inputs, outputs}, {}, {}, false, input};
  call.finish = [memory, to] { unflatten(memory, to); };
  if (all_same_count(to)) {
    call.issue = [from, memory](pithComm_t comm, pithStream_t stream) {
      all_gather(from, memory, comm, stream);
    };
    return run(std::move(call), opts.asyncOp);
  }
  call.issue = [from, memory, counts = bytes_of_each(to)](pithComm_t comm, pithStream_t stream) {
    check(pithAllGatherV(from.data_ptr(), memory.data_ptr(), counts.data(), nullptr, pithUint8,
                         comm, stream));
  };
  return run(std::move(call), opts.asyncOp);
}

WorkReturned Collectives::allgather_coalesced(TensorLists& outputs, TensorList& inputs,
                                              const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(!inputs.empty(), "all_gather_coalesced: expected at least one input");
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == size_, "all_gather_coalesced: expected ",
                    size_, " lists of outputs, got ", outputs.size());
  TensorList from;
  TensorList to;
  TensorLists targets;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TensorList of_all;
    for (const TensorList& list : outputs) of_all.push_back(list.at(i));
    check_alike(of_all, size_, inputs[i], "all_gather_coalesced");
    from.push_back(packed(inputs[i]));
    to.push_back(flat_memory(of_all));
    targets.push_back(std::move(of_all));
  }
  const auto issue = [from, to](pithComm_t comm, pithStream_t stream) {
    for (std::size_t i = 0; i < from.size(); ++i) all_gather(from[i], to[i], comm, stream);
  };
  const auto finish = [to, targets] {
    for (std::size_t i = 0; i < to.size(); ++i) unflatten(to[i], targets[i]);
  };
  return run({{OpType::ALLGATHER_COALESCED, "pith:all_gather", inputs, outputs},
              issue,
              finish,
              true,
              inputs[0]},
             opts.asyncOp);
}

}  // namespace pith_torch
