#include "collectives/compressed.hpp"

#include <cmath>

#include "collectives/algorithm.hpp"
#include "collectives/parcels.hpp"
#include "collectives/result_writer.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

void begin(const CompressedTensor& tensor, std::uint32_t call, std::size_t ranks) {
  Compressor& compressor = *tensor.compressor;
  compressor.shape(tensor.count, tensor.type);
  compressor.begin(call, {tensor.send, tensor.type});
  for (PairList& list : compressor.received(ranks)) list.begin(compressor.spec().values);
}

Task<Error> run_scheme(Call& call, const SparseCall& args) { return allreduce_topk(call, args); }

void share_traffic(const Traffic& traffic, std::span<CompressedTensor> tensors, std::size_t all) {
  for (const CompressedTensor& tensor : tensors) {
    const double share = all == 0 ? 0 : double(tensor.count) / double(all);
    CompressorStats& stats = tensor.compressor->stats;
    stats.bytes_sent = static_cast<std::uint64_t>(share * double(traffic.sent));
    stats.bytes_received = static_cast<std::uint64_t>(share * double(traffic.received));
  }
}

}  // namespace

void SparseCall::conclude(const CompressedTensor& tensor, ResultWriter& writer) const {
  CompressorStats& stats = tensor.compressor->stats;
  stats.selected_union = writer.count();
  const Error error = writer.finish();
  if (error && !*refused) *refused = error;
}

bool found_nonfinite(const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.compressor->stats.nonfinite > 0) return true;
  }
  return false;
}

void deliver_nan(Call& call, const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->return_taken(call.host_compute());
    ResultWriter writer(call, tensor);
    writer.put_nan();
    args.conclude(tensor, writer);
  }
}

Task<Error> allreduce_compressed(Call& call, std::span<CompressedTensor> tensors,
                                 const Tuning& tuning) {
  std::size_t all = 0;
  for (const CompressedTensor& tensor : tensors) {
    begin(tensor, call.number(), static_cast<std::size_t>(call.size()));
    all += tensor.count;
  }
  Traffic traffic;
  Error refused;
  SparseCall args{tensors, tuning.chunk_bytes, 0, &traffic, &refused};
  args.parcel = parcel_elements(all, args.spec().density, tuning.chunk_bytes);
  Error error = co_await run_scheme(call, args);
  for (const CompressedTensor& tensor : tensors) {
    if (error) {
      tensor.compressor->fail(call.host_compute());
    } else {
      tensor.compressor->end(call.host_compute());
    }
  }
  share_traffic(traffic, tensors, all);
  co_return error ? error : refused;
}

void absorb_gradients(Compute& host, std::uint32_t number, std::span<CompressedTensor> tensors) {
  for (const CompressedTensor& tensor : tensors) {
    begin(tensor, number, 1);
    tensor.compressor->fail(host);
  }
}

std::uint64_t digest_of_tensors(std::span<const CompressedTensor> tensors) {
  std::uint64_t hash = 0;
  for (const CompressedTensor& tensor : tensors) {
    hash = mix(mix(hash, tensor.count), tensor.compressor->digest());
    hash = mix(hash, static_cast<std::uint64_t>(tensor.type) << 1 | (tensor.average ? 1u : 0u));
  }
  return hash;
}

}  // namespace pith
