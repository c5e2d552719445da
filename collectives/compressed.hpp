// Compressed allreduces: their arguments, and the exchanges that carry them out.
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

class CompressedCalls;
struct Tuning;

// The result as pairs with ascending indices: at most `capacity`, their number in *count. If
// `count` is null the result is dense. In a device's call it is memory that the device reaches.
struct SparseOutput {
  std::uint64_t* indices = nullptr;
  std::byte* values = nullptr;  // of the call's type
  std::size_t capacity = 0;
  std::size_t* count = nullptr;
  PairList* list = nullptr;       // if not null, takes all pairs instead, as float32
  bool counts_on_device = false;  // *count is device memory
};

// One vector of a compressed call.
struct CompressedTensor {
  Compressor* compressor = nullptr;
  const std::byte* send = nullptr;  // null: zeros; the accumulator: added to in place
  std::byte* recv = nullptr;        // dense; may equal send; not used where the result is sparse
  SparseOutput sparse;
  std::size_t count = 0;
  DType type = DType::f32;
  bool average = false;
  float divisor = 0;  // of an average; 0: the number of ranks
  // The device that send, recv and the accumulator are on; null: the host. The same for all tensors
  // of a call.
  Compute* device = nullptr;
};

inline std::size_t elements_of(std::span<const CompressedTensor> tensors) {
  std::size_t all = 0;
  for (const CompressedTensor& tensor : tensors) all += tensor.count;
  return all;
}

inline float divisor_of(const CompressedTensor& tensor, int ranks) {
  if (!tensor.average) return 1;
  return tensor.divisor != 0 ? tensor.divisor : static_cast<float>(ranks);
}

// Runs one call. All tensors have the same spec, and their compressors are at the same step; on a
// device, it is that of the call's compute. After any error their accumulators hold old residual
// plus gradient. `calls` belongs to the communicator.
Task<Error> allreduce_compressed(Call& call, std::span<CompressedTensor> tensors, Tuning tuning,
                                 CompressedCalls& calls);
// The error for which a call is refused before it changes anything: lists too long for a message.
// The same on all ranks.
Error check_lists(std::span<const CompressedTensor> tensors);
// Begins a call for one of its tensors.
void begin_tensor(const CompressedTensor& tensor, std::uint32_t call, int ranks);
// For a call that failed before it began: leaves old residual plus gradient in the accumulators.
void absorb_gradients(Compute& host, std::uint32_t number, std::span<CompressedTensor> tensors);
// Undoes a call that succeeded here, since ranks turned out to be in different calls: leaves the
// same.
void take_back(Compute& host, std::uint32_t number, std::span<CompressedTensor> tensors);
// Hash of what ranks must agree on.
std::uint64_t digest_of_tensors(std::span<const CompressedTensor> tensors);

class ResultWriter;

// Bytes of a call's messages on this rank.
struct Traffic {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// The arguments of an exchange. compressed.cpp calls begin() and end() of every compressor around
// it, and restores the accumulators after errors.
struct SparseCall {
  std::span<CompressedTensor> tensors;
  const Tuning* tuning = nullptr;
  std::size_t chunk_bytes = 0;  // of the tuning
  std::size_t parcel = 0;       // elements, see parcels.hpp
  Traffic* traffic = nullptr;
  Error* refused = nullptr;  // why this rank's output is refused; the call still counts
  bool* nan = nullptr;       // set to true if NaN is delivered; may be null
  Call* device = nullptr;    // its verbs take device memory; null: the vectors are on the host

  const Spec& spec() const { return tensors[0].compressor->spec(); }
  // The queue that works on the vectors. Lists are in host memory in any case, and `call` works
  // there.
  VectorQueue queue(Call& call) const {
    if (!device) return VectorQueue(call.host_compute(), call.frame_arena());
    return VectorQueue(device->compute(), call.host_compute(), call.scheduler(),
                       call.frame_arena());
  }
  // After a tensor's last piece: completes its statistics, and sets *refused if the output has no
  // room.
  void conclude(const CompressedTensor& tensor, ResultWriter& writer) const;
};

// The gradient of some rank was not finite: delivers NaN for every element and returns what was
// taken.
void deliver_nan(Call& call, const SparseCall& args);

// Whether a gradient of this rank has elements that are not finite.
bool found_nonfinite(const SparseCall& args);

// How a scheme's elements are elected, exchanged and summed: the entries of exchanges.cpp.
struct SparseExchange {
  std::string_view name;  // as in Scheme::exchange
  Task<Error> (*run)(Call& call, SparseCall args);
};
std::span<const SparseExchange> exchanges();
// Sums whole accumulators: for the scheme `none`, and for calls of others that are faster dense.
Task<Error> allreduce_dense(Call& call, SparseCall args);
// Runs the exchange of the spec's scheme among all ranks of this call.
Task<Error> run_flat_scheme(Call& call, SparseCall args);
// hierarchy=host. settle_slices() is called first, whichever exchange runs: it adapts what
// compressors keep to the layout of hosts. allreduce_by_host() is for hosts with several ranks.
void settle_slices(Call& call, std::span<CompressedTensor> tensors, bool dense);
Task<Error> allreduce_by_host(Call& call, SparseCall args);

}  // namespace pith
