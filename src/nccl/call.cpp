#include "nccl/call.hpp"

#include <fmt/format.h>

#include <array>

#include "api/completion.hpp"

namespace pith::nccl {

std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, kind_count> names = {
      "AllReduce", "Broadcast", "Bcast",   "Reduce", "AllGather", "ReduceScatter",
      "AlltoAll",  "Gather",    "Scatter", "Send",   "Recv"};
  return names[static_cast<std::size_t>(kind)];
}

Error check_type(std::string_view function, ncclDataType_t type) {
  const int number = static_cast<int>(type);
  if (number >= 0 && number < ncclNumTypes) [[likely]]
    return {};
  return {Code::invalid_argument,
          fmt::format("{}: type is {}, expected 0 to {}", function, number, ncclNumTypes - 1)};
}

pithResult_t issue(const NcclCall& call) {
  const auto type = static_cast<pithDataType_t>(call.type);
  const auto op = static_cast<pithRedOp_t>(call.op);
  const auto comm = ours(call.comm);
  const auto stream = static_cast<pithStream_t>(call.stream);
  const std::size_t n = call.count;
  switch (call.kind) {
    case Kind::allreduce:
      return pithAllReduce(call.send, call.recv, n, type, op, comm, stream);
    case Kind::broadcast:
      return pithBroadcast(call.send, call.recv, n, type, call.root, comm, stream);
    case Kind::bcast:
      return pithBcast(call.recv, n, type, call.root, comm, stream);
    case Kind::reduce:
      return pithReduce(call.send, call.recv, n, type, op, call.root, comm, stream);
    case Kind::allgather:
      return pithAllGather(call.send, call.recv, n, type, comm, stream);
    case Kind::reduce_scatter:
      return pithReduceScatter(call.send, call.recv, n, type, op, comm, stream);
    case Kind::alltoall:  // nccl-tests also times it in place, without checking the result
      return api::alltoall_anywhere(call.send, call.recv, n, type, comm, stream);
    case Kind::gather:
      return pithGather(call.send, call.recv, n, type, call.root, comm, stream);
    case Kind::scatter:
      return pithScatter(call.send, call.recv, n, type, call.root, comm, stream);
    case Kind::send:
      return pithSend(call.send, n, type, call.root, comm, stream);
    case Kind::recv:
      return pithRecv(call.recv, n, type, call.root, comm, stream);
  }
  return pithInternalError;
}

}  // namespace pith::nccl
