// The functions of pith.h that move data: argument checks, then the communicator. No further logic.
#include <fmt/format.h>

#include <cstring>

#include "api/check.hpp"
#include "api/comm_handle.hpp"
#include "api/completion.hpp"
#include "api/compressor_handle.hpp"
#include "api/submission.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// That the larger of the two buffers fits into the address space.
Error check_extent(const char* function, const char* argument, size_t count, pithDataType_t type,
                   Collective collective, pithComm_t comm) {
  const Extent extent = extent_of(collective, comm->communicator->size());
  return check_count(function, argument, count, type,
                     static_cast<int>(std::max(extent.send, extent.recv)));
}

Error check_root(const char* function, int root, pithComm_t comm) {
  return check_rank(function, "root", root, comm->communicator->size());
}

CollectiveArgs make_args(Collective collective, const void* send, const void* recv, size_t count,
                         pithDataType_t type, int root = 0, WireCoding wire = {}) {
  return {.collective = collective,
          .send = bytes_at(send),
          .recv = bytes_at(recv),
          .count = count,
          .type = static_cast<DType>(type),
          .root = root,
          .wire = wire};
}

// How a compressor codes the values of a call, which does not hold it.
Expected<WireCoding> coding_by(const char* function, pithCompressor_t compressor,
                               pithDataType_t type) {
  Error error = check_compressor(function, compressor);
  if (!error) error = check_free(function, *compressor->state);
  if (!error) error = check_type(function, type);
  if (error) return error;
  if (type != pithFloat32 && type != pithFloat16 && type != pithBfloat16) {
    return Error(Code::invalid_argument,
                 fmt::format("{}: type is {}, expected float, half or bfloat16", function,
                             name_of(static_cast<DType>(type))));
  }
  Expected<WireCoding> coding = WireCoding::of(compressor->state->spec());
  if (!coding) return told_by(function, coding.error());
  return coding;
}

Error reduce_scatter(const char* function, const void* send, void* recv, size_t recvcount,
                     pithDataType_t type, pithRedOp_t op, pithComm_t comm, pithStream_t stream,
                     WireCoding wire = {}) {
  constexpr Collective collective = Collective::reduce_scatter;
  Error error = check_call(function, comm, type);
  if (!error) error = check_op(function, op, comm, type);
  if (!error) error = check_extent(function, "recvcount", recvcount, type, collective, comm);
  if (!error) error = check_memory(function, "send", send, recvcount);
  if (!error) error = check_memory(function, "recv", recv, recvcount);
  if (error) return error;
  return submit_reduction(function, comm,
                          make_args(collective, send, recv, recvcount, type, 0, wire), op, stream);
}

// send is used on the root only; other ranks pass recv in its place.
Error broadcast(const char* function, const void* send, void* recv, size_t count,
                pithDataType_t type, int root, pithComm_t comm, pithStream_t stream,
                WireCoding wire = {}) {
  Error error = check_call(function, comm, type);
  if (!error) error = check_root(function, root, comm);
  if (!error) error = check_count(function, "count", count, type, 1);
  if (!error) error = check_memory(function, "recv", recv, count);
  if (error) return error;
  const bool is_root = comm->communicator->rank() == root;
  if (is_root) error = check_memory(function, "send", send, count);
  if (error) return error;
  return submit_move(
      function, comm,
      make_args(Collective::broadcast, is_root ? send : recv, recv, count, type, root, wire),
      stream);
}

Error allgather(const char* function, const void* send, void* recv, size_t sendcount,
                pithDataType_t type, pithComm_t comm, pithStream_t stream, WireCoding wire = {}) {
  constexpr Collective collective = Collective::allgather;
  Error error = check_call(function, comm, type);
  if (!error) error = check_extent(function, "sendcount", sendcount, type, collective, comm);
  if (!error) error = check_memory(function, "send", send, sendcount);
  if (!error) error = check_memory(function, "recv", recv, sendcount);
  if (error) return error;
  return submit_move(function, comm, make_args(collective, send, recv, sendcount, type, 0, wire),
                     stream);
}

Error check_alltoall(const char* function, const void* send, const void* recv, size_t count,
                     pithDataType_t type, pithComm_t comm) {
  Error error = check_call(function, comm, type);
  if (!error) error = check_extent(function, "count", count, type, Collective::alltoall, comm);
  if (!error) error = check_memory(function, "send", send, count);
  if (!error) error = check_memory(function, "recv", recv, count);
  return error;
}

Error alltoall(const char* function, const void* send, void* recv, size_t count,
               pithDataType_t type, pithComm_t comm, pithStream_t stream) {
  return submit_move(function, comm, make_args(Collective::alltoall, send, recv, count, type),
                     stream);
}

// Checked, since in place blocks would be overwritten before they are sent.
Error alltoall_apart(const char* function, const void* send, void* recv, size_t count,
                     pithDataType_t type, pithComm_t comm, pithStream_t stream,
                     WireCoding wire = {}) {
  Error error = check_alltoall(function, send, recv, count, type, comm);
  if (!error && send == recv && count > 0 && comm->communicator->size() > 1) {
    error = Error(Code::invalid_argument,
                  fmt::format("{}: recv is send ({}), expected another buffer", function, send));
  }
  if (error) return error;
  return submit_move(function, comm,
                     make_args(Collective::alltoall, send, recv, count, type, 0, wire), stream);
}

Error pass_message(const char* function, const char* argument, const void* memory, bool sends,
                   size_t count, pithDataType_t type, int peer, pithComm_t comm,
                   pithStream_t stream) {
  Error error = check_call(function, comm, type);
  if (!error) error = check_rank(function, "peer", peer, comm->communicator->size());
  if (!error) error = check_count(function, "count", count, type, 1);
  if (!error) error = check_memory(function, argument, memory, count);
  if (!error) error = resolve_stream(function, stream, {memory});
  if (error) return error;
  Bytes data = bytes_at(memory);
  data.size = count * size_of(static_cast<DType>(type));
  return submit(*comm, Message{data, count, static_cast<DType>(type), peer, sends}, stream);
}

}  // namespace

pithResult_t pithAllReduce(const void* send, void* recv, size_t count, pithDataType_t type,
                           pithRedOp_t op, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithAllReduce";
    Error error = check_call(function, comm, type);
    if (!error) error = check_op(function, op, comm, type);
    if (!error) error = check_count(function, "count", count, type, 1);
    if (!error) error = check_memory(function, "send", send, count);
    if (!error) error = check_memory(function, "recv", recv, count);
    if (error) return error;
    return submit_reduction(function, comm,
                            make_args(Collective::allreduce, send, recv, count, type), op, stream);
  });
}

pithResult_t pithReduce(const void* send, void* recv, size_t count, pithDataType_t type,
                        pithRedOp_t op, int root, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithReduce";
    Error error = check_call(function, comm, type);
    if (!error) error = check_op(function, op, comm, type);
    if (!error) error = check_root(function, root, comm);
    if (!error) error = check_count(function, "count", count, type, 1);
    if (!error) error = check_memory(function, "send", send, count);
    if (error) return error;
    const bool is_root = comm->communicator->rank() == root;
    if (is_root) error = check_memory(function, "recv", recv, count);
    if (error) return error;
    return submit_reduction(
        function, comm,
        make_args(Collective::reduce, send, is_root ? recv : nullptr, count, type, root), op,
        stream);
  });
}

pithResult_t pithReduceScatter(const void* send, void* recv, size_t recvcount, pithDataType_t type,
                               pithRedOp_t op, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&] {
    return reduce_scatter("pithReduceScatter", send, recv, recvcount, type, op, comm, stream);
  });
}

pithResult_t pithBroadcast(const void* send, void* recv, size_t count, pithDataType_t type,
                           int root, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&] {
    return broadcast("pithBroadcast", send, recv, count, type, root, comm, stream);
  });
}

pithResult_t pithBcast(void* buffer, size_t count, pithDataType_t type, int root, pithComm_t comm,
                       pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithBcast";
    if (Error error = check_memory(function, "buffer", buffer, count)) return error;
    return broadcast(function, buffer, buffer, count, type, root, comm, stream);
  });
}

pithResult_t pithAllGather(const void* send, void* recv, size_t sendcount, pithDataType_t type,
                           pithComm_t comm, pithStream_t stream) {
  return concluded(
      comm, [&] { return allgather("pithAllGather", send, recv, sendcount, type, comm, stream); });
}

pithResult_t pithAlltoAll(const void* send, void* recv, size_t count, pithDataType_t type,
                          pithComm_t comm, pithStream_t stream) {
  return concluded(
      comm, [&] { return alltoall_apart("pithAlltoAll", send, recv, count, type, comm, stream); });
}

pithResult_t api::alltoall_anywhere(const void* send, void* recv, size_t count, pithDataType_t type,
                                    pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithAlltoAll";
    const Error error = check_alltoall(function, send, recv, count, type, comm);
    return error ? error : alltoall(function, send, recv, count, type, comm, stream);
  });
}

pithResult_t pithGather(const void* send, void* recv, size_t sendcount, pithDataType_t type,
                        int root, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithGather";
    constexpr Collective collective = Collective::gather;
    Error error = check_call(function, comm, type);
    if (!error) error = check_root(function, root, comm);
    if (!error) error = check_extent(function, "sendcount", sendcount, type, collective, comm);
    if (!error) error = check_memory(function, "send", send, sendcount);
    if (error) return error;
    const bool is_root = comm->communicator->rank() == root;
    if (is_root) error = check_memory(function, "recv", recv, sendcount);
    if (error) return error;
    return submit_move(function, comm,
                       make_args(collective, send, is_root ? recv : nullptr, sendcount, type, root),
                       stream);
  });
}

pithResult_t pithScatter(const void* send, void* recv, size_t recvcount, pithDataType_t type,
                         int root, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithScatter";
    constexpr Collective collective = Collective::scatter;
    Error error = check_call(function, comm, type);
    if (!error) error = check_root(function, root, comm);
    if (!error) error = check_extent(function, "recvcount", recvcount, type, collective, comm);
    if (!error) error = check_memory(function, "recv", recv, recvcount);
    if (error) return error;
    const bool is_root = comm->communicator->rank() == root;
    if (is_root) error = check_memory(function, "send", send, recvcount);
    if (error) return error;
    return submit_move(function, comm,
                       make_args(collective, is_root ? send : nullptr, recv, recvcount, type, root),
                       stream);
  });
}

pithResult_t pithAllGatherCompressed(const void* send, void* recv, size_t sendcount,
                                     pithDataType_t type, pithCompressor_t compressor,
                                     pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithAllGatherCompressed";
    const Expected<WireCoding> wire = coding_by(function, compressor, type);
    if (!wire) return wire.error();
    return allgather(function, send, recv, sendcount, type, comm, stream, *wire);
  });
}

pithResult_t pithReduceScatterCompressed(const void* send, void* recv, size_t recvcount,
                                         pithDataType_t type, pithRedOp_t op,
                                         pithCompressor_t compressor, pithComm_t comm,
                                         pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithReduceScatterCompressed";
    const Expected<WireCoding> wire = coding_by(function, compressor, type);
    if (!wire) return wire.error();
    if (Error error = check_sum(function, op)) return error;
    return reduce_scatter(function, send, recv, recvcount, type, op, comm, stream, *wire);
  });
}

pithResult_t pithBroadcastCompressed(const void* send, void* recv, size_t count,
                                     pithDataType_t type, int root, pithCompressor_t compressor,
                                     pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithBroadcastCompressed";
    const Expected<WireCoding> wire = coding_by(function, compressor, type);
    if (!wire) return wire.error();
    return broadcast(function, send, recv, count, type, root, comm, stream, *wire);
  });
}

pithResult_t pithAlltoAllCompressed(const void* send, void* recv, size_t count, pithDataType_t type,
                                    pithCompressor_t compressor, pithComm_t comm,
                                    pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithAlltoAllCompressed";
    const Expected<WireCoding> wire = coding_by(function, compressor, type);
    if (!wire) return wire.error();
    return alltoall_apart(function, send, recv, count, type, comm, stream, *wire);
  });
}

pithResult_t pithSend(const void* send, size_t count, pithDataType_t type, int peer,
                      pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&] {
    return pass_message("pithSend", "send", send, true, count, type, peer, comm, stream);
  });
}

pithResult_t pithRecv(void* recv, size_t count, pithDataType_t type, int peer, pithComm_t comm,
                      pithStream_t stream) {
  return concluded(comm, [&] {
    return pass_message("pithRecv", "recv", recv, false, count, type, peer, comm, stream);
  });
}

pithResult_t pithBarrier(pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithBarrier";
    Error error = check_communicator(function, comm);
    if (!error) error = check_stream(function, stream);
    if (error) return error;
    CollectiveArgs args = make_args(Collective::barrier, nullptr, nullptr, 0, pithUint8);
    return submit(*comm, args, stream);
  });
}

pithResult_t pithRedOpCreatePreMulSum(pithRedOp_t* op, void* scalar, pithDataType_t type,
                                      pithScalarResidence_t residence, pithComm_t comm) {
  return guarded(comm, [&]() -> Error {
    constexpr const char* function = "pithRedOpCreatePreMulSum";
    Error error = check_call(function, comm, type);
    if (!error) error = check_pointer(function, "op", op);
    if (!error) error = check_pointer(function, "scalar", scalar);
    if (!error && residence != pithScalarDevice && residence != pithScalarHostImmediate) {
      error = Error(Code::invalid_argument,
                    fmt::format("{}: residence is {}, expected pithScalarDevice (0) or "
                                "pithScalarHostImmediate (1)",
                                function, static_cast<int>(residence)));
    }
    if (error) return error;
    Factor factor;
    factor.used = true;
    if (residence == pithScalarDevice) {
      factor.where = static_cast<const std::byte*>(scalar);
    } else {
      std::memcpy(&factor.bits, scalar, size_of(static_cast<DType>(type)));
    }
    *op = comm->ops.add(static_cast<DType>(type), factor);
    return {};
  });
}

pithResult_t pithRedOpDestroy(pithRedOp_t op, pithComm_t comm) {
  return guarded(comm, [&]() -> Error {
    constexpr const char* function = "pithRedOpDestroy";
    if (Error error = check_pointer(function, "comm", comm)) return error;
    if (comm->ops.remove(op)) return {};
    return {Code::invalid_argument,
            fmt::format("{}: op is {}, expected what pithRedOpCreatePreMulSum made for this "
                        "communicator",
                        function, describe(op))};
  });
}

pithResult_t pithCommRegister(pithComm_t comm, void* buffer, size_t bytes, void** handle) {
  return guarded(comm, [&]() -> Error {
    constexpr const char* function = "pithCommRegister";
    Error error = check_communicator(function, comm);
    if (!error) error = check_pointer(function, "buffer", buffer);
    if (!error) error = check_pointer(function, "handle", handle);
    if (!error && bytes == 0) {
      error = Error(Code::invalid_argument,
                    fmt::format("{}: bytes is 0, expected at least 1", function));
    }
    if (error) return error;
    *handle = comm->registrations.add(buffer, bytes);
    return {};
  });
}

pithResult_t pithCommDeregister(pithComm_t comm, void* handle) {
  return guarded(comm, [&]() -> Error {
    constexpr const char* function = "pithCommDeregister";
    if (Error error = check_pointer(function, "comm", comm)) return error;
    if (!handle || comm->registrations.remove(handle)) return {};
    return {Code::invalid_argument,
            fmt::format("{}: handle is {}, expected what pithCommRegister gave for this "
                        "communicator and is not deregistered yet",
                        function, handle)};
  });
}
