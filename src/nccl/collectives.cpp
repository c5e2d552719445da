// NCCL's functions that move data, exported.
#include "nccl/call.hpp"
#include "nccl/errors.hpp"
#include "nccl/exported.hpp"

using namespace pith::nccl;

NCCL_EXPORT(ncclResult_t, ncclAllReduce,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             ncclComm_t comm, cudaStream_t stream)) {
  return submit({Kind::allreduce, send, recv, count, type, op, 0, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclBroadcast,
            (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream)) {
  return submit({Kind::broadcast, send, recv, count, type, ncclSum, root, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclBcast,
            (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
             cudaStream_t stream)) {
  return submit({Kind::bcast, nullptr, buffer, count, type, ncclSum, root, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclReduce,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             int root, ncclComm_t comm, cudaStream_t stream)) {
  return submit({Kind::reduce, send, recv, count, type, op, root, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclAllGather,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
             cudaStream_t stream)) {
  return submit({Kind::allgather, send, recv, count, type, ncclSum, 0, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclReduceScatter,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             ncclComm_t comm, cudaStream_t stream)) {
  return submit({Kind::reduce_scatter, send, recv, count, type, op, 0, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclAlltoAll,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
             cudaStream_t stream)) {
  return submit({Kind::alltoall, send, recv, count, type, ncclSum, 0, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclGather,
            (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream)) {
  return submit({Kind::gather, send, recv, count, type, ncclSum, root, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclScatter,
            (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream)) {
  return submit({Kind::scatter, send, recv, count, type, ncclSum, root, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclSend,
            (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
             cudaStream_t stream)) {
  return submit({Kind::send, send, nullptr, count, type, ncclSum, peer, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclRecv,
            (void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
             cudaStream_t stream)) {
  return submit({Kind::recv, nullptr, recv, count, type, ncclSum, peer, comm, stream});
}

NCCL_EXPORT(ncclResult_t, ncclRedOpCreatePreMulSum,
            (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,
             ncclComm_t comm)) {
  constexpr const char* function = "ncclRedOpCreatePreMulSum";
  if (pith::Error error = check_type(function, type)) return guarded([&] { return error; });
  return answer(pithRedOpCreatePreMulSum(
      reinterpret_cast<pithRedOp_t*>(op), scalar, static_cast<pithDataType_t>(type),
      static_cast<pithScalarResidence_t>(residence), ours(comm)));
}

NCCL_EXPORT(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  return answer(pithRedOpDestroy(static_cast<pithRedOp_t>(op), ours(comm)));
}
