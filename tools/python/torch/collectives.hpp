// The collectives of c10d, made of libpith's.
#pragma once

#include "gradient_compressor.hpp"
#include "group_calls.hpp"
#include "reduction.hpp"

namespace pith_torch {

class Collectives : public GroupCalls {
 public:
  using GroupCalls::GroupCalls;

  WorkReturned broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) override;
  WorkReturned allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkReturned allreduce_sparse(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkReturned allreduce_coalesced(TensorList& tensors,
                                   const c10d::AllreduceCoalescedOptions& opts) override;
  WorkReturned reduce(TensorList& tensors, const c10d::ReduceOptions& opts) override;
  WorkReturned reduce_scatter(TensorList& outputs, TensorLists& inputs,
                              const c10d::ReduceScatterOptions& opts) override;
  WorkReturned _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& opts) override;
  WorkReturned reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                               const c10d::ReduceScatterOptions& opts) override;
  WorkReturned allgather(TensorLists& outputs, TensorList& inputs,
                         const c10d::AllgatherOptions& opts) override;
  WorkReturned _allgather_base(at::Tensor& output, at::Tensor& input,
                               const c10d::AllgatherOptions& opts) override;
  WorkReturned allgather_coalesced(TensorLists& outputs, TensorList& inputs,
                                   const c10d::AllgatherOptions& opts) override;
  WorkReturned allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                               const c10d::AllgatherOptions& opts) override;
  WorkReturned gather(TensorLists& outputs, TensorList& inputs,
                      const c10d::GatherOptions& opts) override;
  WorkReturned scatter(TensorList& outputs, TensorLists& inputs,
                       const c10d::ScatterOptions& opts) override;
  WorkReturned alltoall(TensorList& outputs, TensorList& inputs,
                        const c10d::AllToAllOptions& opts) override;
  WorkReturned alltoall_base(at::Tensor& output, at::Tensor& input,
                             std::vector<int64_t>& output_splits,
                             std::vector<int64_t>& input_splits,
                             const c10d::AllToAllOptions& opts) override;
  // Sum or mean of what the compressors of all ranks send. The result replaces the tensor.
  WorkReturned allreduce_compressed(const at::Tensor& tensor,
                                    const std::shared_ptr<GradientCompressor>& compressor,
                                    bool average, bool async);
};

}  // namespace pith_torch
