// The sum of sparse tensors: every rank gets the entries of all and adds them.
#include "collectives.hpp"
#include "dtypes.hpp"
#include "errors.hpp"

namespace pith_torch {

namespace {

using Counts = std::vector<int64_t>;

Counts counts_of_all(int64_t own, int size, pithComm_t comm, pithStream_t stream) {
  Counts counts(static_cast<std::size_t>(size));
  check(pithAllGather(&own, counts.data(), 1, pithInt64, comm, stream));
  return counts;
}

// Entries lie along dimension 0, so that those of a rank are together.
at::Tensor gather_entries(const at::Tensor& own, const Counts& counts, pithComm_t comm,
                          pithStream_t stream) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = total;
  const at::Tensor all = at::empty(shape, own.options());
  CallGroup group;
  int64_t begin = 0;
  for (std::size_t root = 0; root < counts.size(); ++root) {
    const at::Tensor part = all.narrow(0, begin, counts[root]);
    check(pithBroadcast(own.data_ptr(), part.data_ptr(), bytes_of(part), pithUint8,
                        static_cast<int>(root), comm, stream));
    begin += counts[root];
  }
  group.run();
  return all;
}

}  // namespace

// The ranks must know the number of entries before they can exchange them, so the call has ended
// when this returns, also if it was meant for the background.
WorkReturned Collectives::allreduce_sparse(TensorList& tensors,
                                           const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "all_reduce: expected one tensor, got ", tensors.size());
  TORCH_CHECK_VALUE(opts.reduceOp.op_ == c10d::ReduceOp::SUM,
                    "pith has only ReduceOp.SUM for sparse tensors");
  const at::Tensor tensor = tensors[0];
  TORCH_CHECK_NOT_IMPLEMENTED(!tensor.is_cuda(), "pith reduces only sparse tensors of the host");
  const at::Tensor own = tensor.detach().coalesce();
  const at::Tensor indices = own.indices().t().contiguous();
  const at::Tensor values = own.values().contiguous();
  Call call{{c10d::OpType::_ALLREDUCE_SPARSE, "pith:sparse_all_reduce", tensors, {tensors}},
            {},
            {},
            false,
            {}};
  call.issue = [=, size = size_](pithComm_t comm, pithStream_t stream) {
    const Counts counts = counts_of_all(own._nnz(), size, comm, stream);
    const at::Tensor all_indices = gather_entries(indices, counts, comm, stream);
    const at::Tensor all_values = gather_entries(values, counts, comm, stream);
    const at::Tensor sum =
        at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes(), tensor.options())
            .coalesce();
    tensor.copy_(sum);  // not into tensor.detach(): that has a list of entries of its own
  };
  return run(std::move(call), false);
}

}  // namespace pith_torch
