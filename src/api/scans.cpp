// The functions of pith.h that give each rank a reduction over the ranks up to it.
#include "api/submission.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// `recv`: NULL on a rank that has no result.
Error scan(const char* function, Collective collective, const void* send, void* recv, size_t count,
           pithDataType_t type, pithRedOp_t op, pithComm_t comm, pithStream_t stream) {
  Error error = check_op(function, op, comm, type);
  if (!error) error = check_scan_op(function, op);
  if (!error) error = check_count(function, "count", count, type, 1);
  if (!error) error = check_memory(function, "send", send, count);
  if (error) return error;
  return submit_reduction(function, comm,
                          {.collective = collective,
                           .send = bytes_at(send),
                           .recv = bytes_at(recv),
                           .count = count,
                           .type = static_cast<DType>(type)},
                          op, stream);
}

}  // namespace

pithResult_t pithScan(const void* send, void* recv, size_t count, pithDataType_t type,
                      pithRedOp_t op, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithScan";
    Error error = check_call(function, comm, type);
    if (!error) error = check_memory(function, "recv", recv, count);
    if (error) return error;
    return scan(function, Collective::scan, send, recv, count, type, op, comm, stream);
  });
}

pithResult_t pithExScan(const void* send, void* recv, size_t count, pithDataType_t type,
                        pithRedOp_t op, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&]() -> Error {
    constexpr const char* function = "pithExScan";
    Error error = check_call(function, comm, type);
    const bool has_result = !error && comm->communicator->rank() > 0;
    if (has_result) error = check_memory(function, "recv", recv, count);
    if (error) return error;
    return scan(function, Collective::exscan, send, has_result ? recv : nullptr, count, type, op,
                comm, stream);
  });
}
