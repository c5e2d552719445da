#include "streams/stream_scratch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>

#include "collectives/coded/coded_parcels.hpp"
#include "collectives/dense/handle_exchange.hpp"
#include "collectives/premultiply.hpp"
#include "collectives/sparse/coded_cost.hpp"
#include "compress/low_rank/elected_rows.hpp"
#include "compress/low_rank/given_matrices.hpp"
#include "core/log.hpp"

namespace pith {

namespace {

constexpr std::size_t most_prepared_bytes = std::size_t{64} << 20;

// Scratch of one call, rounding included: the chunks in flight, and whole vectors if they are short
// enough for one-shot algorithms.
struct Need {
  std::size_t device;
  std::size_t pinned;
};

// Point-to-point messages are staged in chunks.
Need need_of(const PairArgs& args, std::size_t) {
  Need need{0, 0};
  for (const Message& message : args.messages) {
    need.pinned += 2 * std::min(message.data.size, args.chunk_bytes);
  }
  return need;
}

// Each strand's parcel, and what it gathers; a tensor's last block may be almost empty.
std::size_t coded_scratch(const Coding& coding, const CompressedArgs& args, std::size_t all) {
  const std::size_t parcel = std::min(CodedShape::parcel(all), all);
  const std::size_t tensors = std::min(args.tensors.size(), parcel);
  const std::size_t bytes = coding.bytes(parcel) + tensors * coding.bytes(1);
  // Of values that keep a rest: this rank's part of a parcel.
  const std::size_t own = coding.keeps_rest ? std::bit_ceil(parcel * sizeof(float)) : 0;
  return CodedShape::strands * (2 * std::bit_ceil(bytes) + own);
}

// In whichever form a call may take.
std::size_t coded_scratch(const Spec& spec, const CompressedArgs& args, std::size_t all) {
  std::size_t most = 0;
  for_each_form(spec, [&](const Spec& one) {
    const auto coding = coding_of(one);
    if (coding) most = std::max(most, coded_scratch(*coding, args, all));
  });
  return most;
}

// Each strand's sums and copies of a parcel, and its messages: those that leave, and those that
// arrive at an owner; a tensor's last block may be almost empty.
std::size_t varying_scratch(std::size_t tensors, std::size_t all) {
  constexpr std::size_t copies = 6;
  constexpr std::size_t head = 16;
  const std::size_t parcel = std::min(CodedShape::parcel(all), all);
  const std::size_t heads = head * (std::min(tensors, parcel) + parcel / 64);
  return CodedShape::strands * copies * std::bit_ceil(parcel * sizeof(float) + heads + head);
}

// The messages of factors (or sketches, and what they are projected on), of all tensors: on both
// sides, and room in which the host works on them.
Need low_rank_scratch(const CompressedArgs& args) {
  std::size_t left = 1;
  std::size_t right = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    const auto& known = tensor.compressor->low_rank.layout;
    // Where they are not known yet, both have all at most.
    const std::size_t all = unstated_counts(tensor.compressor->spec(), tensor.count).all();
    left += known ? known->left_count() : all;
    right += known ? known->right_count() : all;
  }
  const std::size_t messages =
      std::bit_ceil(left * sizeof(float)) + 2 * std::bit_ceil(right * sizeof(float));
  return {messages, messages + std::bit_ceil(left * sizeof(double))};
}

// Lists of candidates, results on their way, and messages; or the vectors of a dense call.
Need need_of(const CompressedArgs& args, std::size_t ranks) {
  constexpr std::size_t pair_bytes = 12;
  constexpr std::size_t least = std::size_t{1} << 20;
  Need need{2 * least, 4 * least};
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    all += tensor.count;
    const Spec& spec = tensor.compressor->spec();
    const bool elects = any_form(spec, [](const Spec& one) { return one.sparse(); });
    const std::size_t k = elects ? most_elected(*tensor.compressor, tensor.count) : 0;
    // A part may be elected as a whole, if a rule says so.
    constexpr std::size_t part = std::size_t{1} << 22;
    const bool by_rule = spec.scheme->electors == Electors::each_by_rule;
    const std::size_t listed = std::max(4 * k + (least >> 4), by_rule ? part : 0);
    need.device += 2 * pair_bytes * std::min(tensor.count, listed);
    need.pinned += pair_bytes * (4 + ranks) * k;
    if (tensor.sparse.count) need.pinned += 2 * pair_bytes * std::min(tensor.count, least);
    const Scheme& stated = spec.stated();
    const bool in_few =
        stated.coding || stated.varying || (rank_of(spec) > 0 && !starts_dense(spec, 0));
    const bool dense = !in_few && (!elects || spec.may_bypass);
    if (dense) need.device += 2 * tensor.count * sizeof(float);
    if (spec.by_host) need.pinned += 2 * tensor.count * sizeof(float);
  }
  const Spec& first = args.tensors[0].compressor->spec();
  need.pinned += coded_scratch(first, args, all);
  if (first.scheme->varying) need.pinned += varying_scratch(args.tensors.size(), all);
  if (layout_rank_of(first) > 0) {
    const Need factors = low_rank_scratch(args);
    need.device += factors.device;
    need.pinned += factors.pinned;
  }
  const std::size_t chunks = 32 * args.tuning.chunk_bytes;
  return {2 * (need.device + chunks), 2 * (need.pinned + chunks)};
}

// Each strand's parcel, its messages, and what an algorithm collects of it.
Need coded_need(const CollectiveArgs& args, std::size_t p) {
  const CodedParcels parcels(args, args.wire.coding(), static_cast<int>(p));
  const std::size_t coded = std::bit_ceil(parcels.coded_bytes());
  const std::size_t collected = 8 * args.tuning.chunk_bytes;
  const std::size_t floats = std::bit_ceil(parcels.float_bytes(true));
  constexpr std::size_t strands = CodedParcels::most_strands;
  return {strands * (coded + floats + collected), strands * (2 * coded + collected)};
}

Need need_of(const CollectiveArgs& args, std::size_t p) {
  if (args.wire.is_used()) return coded_need(args, p);
  constexpr std::size_t short_bytes = std::size_t{1} << 20;
  constexpr std::size_t strands = 16;
  const std::size_t vector = std::max(args.send.size, args.recv.size);
  const std::size_t chunk = std::min(vector, args.tuning.chunk_bytes);
  const std::size_t whole = std::min(vector, short_bytes);
  const std::size_t collected = 4 * args.tuning.chunk_bytes;
  const std::size_t work = std::min(vector, std::max(collected, premultiply_room(args.tuning, p)));
  const std::size_t lent = std::min<std::size_t>(p, most_view_ranks);  // by peers, at once
  const std::size_t ranges = std::bit_ceil(1 + args.uneven.ranks * sizeof(Range));
  return {2 * ((p + strands) * chunk + (p + 1) * whole + 2 * work),
          2 * ((lent + strands) * chunk + (lent + 4) * whole + 2 * work + ranges)};
}

// The network reads and writes these messages itself, in scratch of the device.
bool has_direct_routes(const CallContext& context) {
  return std::any_of(context.routes.begin(), context.routes.end(), [&](const Route& route) {
    return route.transport && route.transport->direct_bytes(*context.compute) != no_bytes;
  });
}

Need need_of(const CallArgs& args, const CallContext& context) {
  const auto ranks = static_cast<std::size_t>(context.size);
  Need need = std::visit([ranks](const auto& kind) { return need_of(kind, ranks); }, args);
  if (has_direct_routes(context)) need.device += need.pinned;
  return need;
}

}  // namespace

Error StreamScratch::prepare(const CallArgs& args) {
  const Need need = need_of(args, device_.context());
  const auto reserve_part = [](cuda::ScratchPool& pool, std::size_t bytes) {
    return pool.reserve(std::min(bytes, most_prepared_bytes));
  };
  if (Error error = reserve_part(device_.compute().scratch(), need.device)) return error;
  return reserve_part(device_.pinned().scratch(), need.pinned);
}

Error StreamScratch::reserve(const CallArgs& args, cuda::CUstream stream) {
  const void* const identity = cuda::identity_of(stream);
  if (std::find(streams_.begin(), streams_.end(), identity) == streams_.end()) {
    streams_.push_back(identity);
    warn_of_priority(stream);
  }
  const Need need = need_of(args, device_.context());
  device_need_ = std::max(device_need_, need.device);
  pinned_need_ = std::max(pinned_need_, need.pinned);
  if (Error error = device_.compute().scratch().reserve(streams_.size() * device_need_)) {
    return error;
  }
  return device_.pinned().scratch().reserve(streams_.size() * pinned_need_);
}

// Streams of one priority share hardware queues. A stream that waits for a call of ours may hold up
// the stream of ours that is to end the call.
void StreamScratch::warn_of_priority(cuda::CUstream stream) const {
  static std::once_flag told;
  int priority = 0;
  if (device_.compute().workers()) return;
  const cuda::CUresult asked = device_.driver().stream_get_priority(stream, &priority);
  if (asked != cuda::kSuccess || priority != device_.compute().priority()) return;
  std::call_once(told, [&] {
    log(LogLevel::warn,
        fmt::format("stream {} has priority {}, as Pith's own streams have: with more of them than "
                    "hardware queues (CUDA_DEVICE_MAX_CONNECTIONS, 8) calls may hang; lower it, or "
                    "set PITH_CUDA_STEPS=worker",
                    static_cast<const void*>(stream), priority));
  });
}

}  // namespace pith
