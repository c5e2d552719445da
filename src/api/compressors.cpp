// pith.h implemented: compressors and the calls that use them. Functions on the state between calls
// are in compressor_state.cpp.
#include <fmt/format.h>

#include "api/check.hpp"
#include "api/comm_handle.hpp"
#include "api/compressor_handle.hpp"
#include "api/destroyed_handles.hpp"
#include "api/last_error.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// Checks all arguments but the buffers.
Error check_call(const char* function, size_t count, pithDataType_t type, pithRedOp_t op,
                 pithCompressor_t compressor, pithComm_t comm) {
  Error error = check_communicator(function, comm);
  if (!error) error = check_compressor(function, compressor);
  if (!error) error = check_type(function, type);
  if (!error) error = check_sum(function, op);
  if (!error) error = check_count(function, "count", count, type, 1);
  if (error) return error;
  error = check_free(function, *compressor->state);
  if (!error) error = check_binding(function, *compressor->state, *comm->communicator);
  if (error) return error;
  error = compressor->state->check(count, static_cast<DType>(type));
  return error ? refused(function, error.message()) : error;
}

// That the result does not overwrite the compressor's accumulator.
Error check_apart(const char* function, const char* argument, const void* out, size_t bytes,
                  const Compressor& compressor) {
  const auto* begin = static_cast<const std::byte*>(out);
  const auto* kept = reinterpret_cast<const std::byte*>(compressor.accumulator());
  const std::size_t kept_bytes = compressor.count() * sizeof(float);
  if (!kept || begin + bytes <= kept || kept + kept_bytes <= begin) return {};
  return refused(function, fmt::format("{} is {}, expected memory apart from the compressor's "
                                       "accumulator at {}",
                                       argument, out, static_cast<const void*>(kept)));
}

CompressedTensor make_tensor(const void* send, size_t count, pithDataType_t type, pithRedOp_t op,
                             pithCompressor_t compressor) {
  return {.compressor = compressor->state.get(),
          .send = static_cast<const std::byte*>(send),
          .recv = nullptr,
          .sparse = {},
          .count = count,
          .type = static_cast<DType>(type),
          .average = op == pithAvg};
}

Error submit(const char* function, pithComm_t comm, const pithCompressor& compressor,
             const CompressedTensor& tensor, pithStream_t stream) {
  Claim claim(function, *compressor.state);
  if (claim.error()) return claim.error();
  claim.keep();
  return pith::submit(*comm, compressor.state, tensor, stream);
}

}  // namespace

pithResult_t pithCompressorCreate(pithCompressor_t* compressor, const char* spec) {
  return guarded([&]() -> Error {
    constexpr const char* function = "pithCompressorCreate";
    Error error = check_pointer(function, "compressor", compressor);
    if (!error) error = check_pointer(function, "spec", spec);
    if (error) return error;
    Expected<std::unique_ptr<Compressor>> made = Compressor::create(spec);
    if (!made) return refused(function, made.error().message());
    auto handle = std::make_unique<pithCompressor>();
    handle->state = std::move(*made);
    *compressor = handle.release();
    return {};
  });
}

pithResult_t pithCompressorDestroy(pithCompressor_t compressor) {
  return guarded([&]() -> Error {
    if (!compressor) return {};
    constexpr const char* function = "pithCompressorDestroy";
    if (Error error = check_compressor(function, compressor)) return error;
    if (Error error = check_free(function, *compressor->state)) return error;
    // Of two threads that destroy it at once, the second gets the error of a destroyed compressor.
    if (compressor->destroyed.exchange(true)) return check_compressor(function, compressor);
    keep_destroyed(compressor);
    return {};
  });
}

pithResult_t pithAllReduceCompressed(const void* send, void* recv, size_t count,
                                     pithDataType_t type, pithRedOp_t op,
                                     pithCompressor_t compressor, pithComm_t comm,
                                     pithStream_t stream) {
  return guarded(comm, [&] {
    return conclude([&]() -> Error {
      constexpr const char* function = "pithAllReduceCompressed";
      Error error = check_call(function, count, type, op, compressor, comm);
      if (!error) error = resolve_stream(function, stream, {send, recv});
      if (!error) error = check_memory(function, "recv", recv, count);
      if (!error) {
        const std::size_t bytes = count * size_of(static_cast<DType>(type));
        error = check_apart(function, "recv", recv, bytes, *compressor->state);
      }
      if (error) return error;
      CompressedTensor tensor = make_tensor(send, count, type, op, compressor);
      tensor.recv = static_cast<std::byte*>(recv);
      return submit(function, comm, *compressor, tensor, stream);
    }());
  });
}

pithResult_t pithAllReduceCompressedSparse(const void* send, uint64_t* indices, void* values,
                                           size_t capacity, size_t* n, size_t count,
                                           pithDataType_t type, pithRedOp_t op,
                                           pithCompressor_t compressor, pithComm_t comm,
                                           pithStream_t stream) {
  return guarded(comm, [&] {
    return conclude([&]() -> Error {
      constexpr const char* function = "pithAllReduceCompressedSparse";
      Error error = check_call(function, count, type, op, compressor, comm);
      if (!error) error = resolve_stream(function, stream, {send, values, indices, n});
      if (!error) error = check_memory(function, "indices", indices, capacity);
      if (!error) error = check_memory(function, "values", values, capacity);
      if (!error) error = check_pointer(function, "n", n);
      if (error) return error;
      CompressedTensor tensor = make_tensor(send, count, type, op, compressor);
      tensor.sparse = {indices, static_cast<std::byte*>(values), capacity, n};
      return submit(function, comm, *compressor, tensor, stream);
    }());
  });
}
