// The sum of sparse tensors: libpith adds rows, one for each place of the sparse dimensions. What
// it cannot, types it does not compute with and numbers of places beyond 2^32, goes by the entries
// of all ranks, which each rank adds.
#include <algorithm>
#include <limits>

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

at::Tensor sum_of_entries(const at::Tensor& own, const at::Tensor& like, int size, pithComm_t comm,
                          pithStream_t stream) {
  const Counts counts = counts_of_all(own._nnz(), size, comm, stream);
  const at::Tensor indices = gather_entries(own.indices().t().contiguous(), counts, comm, stream);
  const at::Tensor values = gather_entries(own.values().contiguous(), counts, comm, stream);
  return at::sparse_coo_tensor(indices.t(), values, like.sizes(), like.options()).coalesce();
}

// The places of the sparse dimensions as one number each, and back.
class Places {
 public:
  explicit Places(const at::Tensor& sparse)
      : sizes_(sparse.sizes().slice(0, size_of(sparse)).vec()) {
    for (const int64_t size : sizes_) {
      if (__builtin_mul_overflow(all_, size, &all_)) all_ = std::numeric_limits<int64_t>::max();
    }
  }
  int64_t all() const { return all_; }
  at::Tensor numbers_of(const at::Tensor& indices) const {
    at::Tensor numbers = at::zeros({indices.size(1)}, indices.options());
    for (std::size_t d = 0; d < sizes_.size(); ++d) {
      numbers.mul_(sizes_[d]).add_(indices[static_cast<int64_t>(d)]);
    }
    return numbers;
  }
  at::Tensor indices_of(at::Tensor numbers) const {
    std::vector<at::Tensor> indices(sizes_.size());
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      const int64_t size = std::max<int64_t>(sizes_[d], 1);
      indices[d] = numbers.remainder(size);
      numbers = numbers.div(size, "trunc");
    }
    return at::stack(indices);
  }

 private:
  static std::size_t size_of(const at::Tensor& sparse) {
    return static_cast<std::size_t>(sparse.sparse_dim());
  }
  std::vector<int64_t> sizes_;
  int64_t all_ = 1;
};

at::Tensor sum_of_rows(const at::Tensor& own, const at::Tensor& like, pithDataType_t type,
                       const Places& places, pithComm_t comm, pithStream_t stream) {
  const at::Tensor numbers = places.numbers_of(own.indices());
  const at::Tensor values = own.values().contiguous();
  int64_t room = own._nnz();
  check(pithAllReduce(&room, &room, 1, pithInt64, pithSum, comm, stream));
  room = std::min(room, places.all());
  const at::Tensor sum_numbers = at::empty({room}, numbers.options());
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = room;
  const at::Tensor sums = at::empty(shape, values.options());
  const int64_t width = c10::multiply_integers(values.sizes().slice(1));
  std::size_t n = 0;
  check(pithAllReduceSparse(reinterpret_cast<const std::uint64_t*>(numbers.data_ptr<int64_t>()),
                            values.data_ptr(), static_cast<std::size_t>(own._nnz()),
                            reinterpret_cast<std::uint64_t*>(sum_numbers.data_ptr<int64_t>()),
                            sums.data_ptr(), static_cast<std::size_t>(room), &n,
                            static_cast<std::uint64_t>(places.all()),
                            static_cast<std::size_t>(width), type, pithSum, comm));
  const auto found = static_cast<int64_t>(n);
  const at::Tensor indices = places.indices_of(sum_numbers.narrow(0, 0, found));
  return at::sparse_coo_tensor(indices, sums.narrow(0, 0, found), like.sizes(), like.options())
      ._coalesced_(true);
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
  const Places places(own);
  const std::optional<pithDataType_t> type = pith_type(own.scalar_type());
  constexpr int64_t most_places = int64_t{1} << 32;
  const bool by_rows =
      type && own.sparse_dim() > 0 && places.all() <= most_places && tensor.numel() > 0;
  Call call{{c10d::OpType::_ALLREDUCE_SPARSE, "pith:sparse_all_reduce", tensors, {tensors}},
            {},
            {},
            false,
            {}};
  call.issue = [=, size = size_](pithComm_t comm, pithStream_t stream) {
    // Not into tensor.detach(): that has a list of entries of its own.
    tensor.copy_(by_rows ? sum_of_rows(own, tensor, *type, places, comm, stream)
                         : sum_of_entries(own, tensor, size, comm, stream));
  };
  return run(std::move(call), false);
}

}  // namespace pith_torch
