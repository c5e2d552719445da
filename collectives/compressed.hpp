// Compressed allreduces: what a call is given, and who carries it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/call.hpp"
#include "compress/compressor.hpp"
#include "compress/scheme.hpp"
#include "compress/vector_queue.hpp"
#include "core/operation.hpp"

namespace pith {

struct Tuning;

// The result as pairs of rising indices: at most `capacity`, their number in *count. A call with a
// null `count` has a dense result. Of a device's call, memory that the device reaches.
struct SparseOutput {
  std::uint64_t* indices = nullptr;
  std::byte* values = nullptr;  // of the call's type
  std::size_t capacity = 0;
  std::size_t* count = nullptr;
  PairList* list = nullptr;       // not null: of float32, takes all pairs instead
  bool counts_on_device = false;  // *count is the device's own memory
};

// One vector of a compressed call.
struct CompressedTensor {
  Compressor* compressor = nullptr;
  const std::byte* send = nullptr;  // null: zeros; the compressor's accumulator: added to in place
  std::byte* recv = nullptr;        // dense; may equal send; not used where the result is sparse
  SparseOutput sparse;
  std::size_t count = 0;
  DType type = DType::f32;
  bool average = false;
  float divisor = 0;  // of an average; 0: the number of ranks
  // Where send, recv and the accumulator lie, a device's; null: host memory, as all of a call.
  Compute* device = nullptr;
};

inline float divisor_of(const CompressedTensor& tensor, int ranks) {
  if (!tensor.average) return 1;
  return tensor.divisor != 0 ? tensor.divisor : static_cast<float>(ranks);
}

// The tensors of one call: all have the same spec, and their compressors the same step. Whatever
// the error, their accumulators hold old residual plus gradient then. On a device: those of the
// call's compute.
Task<Error> allreduce_compressed(Call& call, std::span<CompressedTensor> tensors, Tuning tuning);
// What a call is refused for, which then changes nothing: lists that are too long for a message.
// The same on all ranks.
Error check_lists(std::span<const CompressedTensor> tensors);
// What a call begins with, for each of its tensors.
void begin_tensor(const CompressedTensor& tensor, std::uint32_t call, int ranks);
// The call failed before it began: the same for the accumulators.
void absorb_gradients(Compute& host, std::uint32_t number, std::span<CompressedTensor> tensors);
// The call had ended well when it turned out that ranks were in different ones: the same again.
void take_back(Compute& host, std::uint32_t number, std::span<CompressedTensor> tensors);
// What ranks must agree on.
std::uint64_t digest_of_tensors(std::span<const CompressedTensor> tensors);

class ResultWriter;

// Bytes of a call's messages.
struct Traffic {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// What a scheme works on. The frame around it, begin() to end() of every compressor, is not its
// business, and neither is the restoring after errors.
struct SparseCall {
  std::span<CompressedTensor> tensors;
  const Tuning* tuning = nullptr;
  std::size_t chunk_bytes = 0;  // of the tuning
  std::size_t parcel = 0;       // elements, see parcels.hpp
  Traffic* traffic = nullptr;
  Error* refused = nullptr;  // by this rank's own output: the call counts all the same
  bool* nan = nullptr;       // set where NaN is delivered, if not null
  Call* device = nullptr;    // whose verbs take device memory; null: the vectors are the host's

  const Spec& spec() const { return tensors[0].compressor->spec(); }
  // What works on the vectors. Lists are the host's in any case, and `call` is.
  VectorQueue queue(Call& call) const {
    if (!device) return VectorQueue(call.host_compute(), call.frame_arena());
    return VectorQueue(device->compute(), call.host_compute(), call.scheduler(),
                       call.frame_arena());
  }
  // After a tensor's last piece: its statistics, and what its output has no room for.
  void conclude(const CompressedTensor& tensor, ResultWriter& writer) const;
};

// Somebody's gradient was not finite: nothing is delivered, and every element is NaN.
void deliver_nan(Call& call, const SparseCall& args);

// Of this rank's gradients.
bool found_nonfinite(const SparseCall& args);

// How a scheme's elements are elected, shared and summed: the entries of exchanges.cpp.
struct SparseExchange {
  std::string_view name;  // as schemes say it
  Task<Error> (*run)(Call& call, SparseCall args);
};
std::span<const SparseExchange> exchanges();
// The sum of whole accumulators: the scheme `none`, and calls of the others that are faster so.
Task<Error> allreduce_dense(Call& call, SparseCall args);
// The one that the spec names, among all ranks of this call.
Task<Error> run_flat_scheme(Call& call, SparseCall args);
// hierarchy=host, where hosts have several ranks. First of all, whatever way the call takes:
void settle_slices(Call& call, std::span<CompressedTensor> tensors, bool dense);
Task<Error> allreduce_by_host(Call& call, SparseCall args);

}  // namespace pith
