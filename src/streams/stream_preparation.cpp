// What a call on a stream is checked for and needs before its stream hears of it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "collectives/chooser.hpp"
#include "collectives/compressed_check.hpp"
#include "collectives/dense/handle_exchange.hpp"
#include "collectives/premultiply.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"
#include "streams/cuda_vectors.hpp"
#include "streams/stream_calls.hpp"
#include "streams/stream_memory.hpp"

namespace pith {

namespace {

// The first call of up to so many bytes finds its scratch; where there are very many ranks, a part.
constexpr std::size_t prepared_bytes = std::size_t{1} << 20;
constexpr std::size_t most_prepared_bytes = std::size_t{64} << 20;
// How long after their end it may be heard of that graphs are gone.
constexpr std::uint64_t told_gone_ns = 5'000'000'000;

// Scratch of one call, rounding included: chunks in flight, and all vectors at once where they are
// short enough for one-shot algorithms.
struct Need {
  std::size_t device;
  std::size_t pinned;
};

// Each message of a pair is staged piece by piece.
Need need_of(const PairArgs& args, std::size_t) {
  Need need{0, 0};
  for (const Message& message : args.messages) {
    need.pinned += 2 * std::min(message.data.size, args.chunk_bytes);
  }
  return need;
}

// Lists that wait to be elected, results on their way, and messages; or the vectors of a dense one.
Need need_of(const CompressedArgs& args, std::size_t ranks) {
  constexpr std::size_t pair_bytes = 12;
  constexpr std::size_t least = std::size_t{1} << 20;
  Need need{2 * least, 4 * least};
  for (const CompressedTensor& tensor : args.tensors) {
    const Spec& spec = tensor.compressor->spec();
    const std::size_t k = spec.sparse() ? elected_of(spec.density, tensor.count) : 0;
    need.device += 2 * pair_bytes * std::min(tensor.count, 4 * k + (least >> 4));
    need.pinned += pair_bytes * (4 + ranks) * k;
    if (tensor.sparse.count) need.pinned += 2 * pair_bytes * std::min(tensor.count, least);
    if (!spec.sparse() || spec.may_bypass) need.device += 2 * tensor.count * sizeof(float);
    if (spec.by_host) need.pinned += 2 * tensor.count * sizeof(float);
  }
  const std::size_t chunks = 32 * args.tuning.chunk_bytes;
  return {2 * (need.device + chunks), 2 * (need.pinned + chunks)};
}

Need need_of(const CollectiveArgs& args, std::size_t p) {
  constexpr std::size_t short_bytes = std::size_t{1} << 20;
  constexpr std::size_t strands = 16;
  const std::size_t vector = std::max(args.send.size, args.recv.size);
  const std::size_t chunk = std::min(vector, args.tuning.chunk_bytes);
  const std::size_t whole = std::min(vector, short_bytes);
  const std::size_t collected = 4 * args.tuning.chunk_bytes;
  const std::size_t work = std::min(vector, std::max(collected, premultiply_room(args.tuning, p)));
  const std::size_t lent = std::min<std::size_t>(p, most_view_ranks);  // by peers, at once
  return {2 * ((p + strands) * chunk + (p + 1) * whole + 2 * work),
          2 * ((lent + strands) * chunk + (lent + 4) * whole + 2 * work)};
}

// Messages that the network reads and writes by itself lie in scratch of the device.
bool has_direct_routes(const CallContext& context) {
  if (context.compute->network_memory() == 0) return false;
  return std::any_of(context.routes.begin(), context.routes.end(), [](const Route& route) {
    return route.transport && route.transport->direct_bytes(MemoryKind::cuda) != no_bytes;
  });
}

Need need_of(const CallArgs& args, const CallContext& context) {
  const auto ranks = static_cast<std::size_t>(context.size);
  Need need = std::visit([ranks](const auto& kind) { return need_of(kind, ranks); }, args);
  if (has_direct_routes(context)) need.device += need.pinned;
  return need;
}

}  // namespace

// One rank alone copies, most of the time.
Error StreamCalls::prepare() {
  if (host_.links.size() == 1) return {};
  if (Error error = join_.prepare()) return error;
  CollectiveArgs args;
  args.count = prepared_bytes;
  args.type = DType::u8;
  host_.runner.complete(args);
  const Need need = need_of(args, context_);
  const auto reserve = [](cuda::ScratchPool& pool, std::size_t bytes) {
    return pool.reserve(std::min(bytes, most_prepared_bytes));
  };
  if (Error error = reserve(compute_->scratch(), need.device)) return error;
  return reserve(pinned_.scratch(), need.pinned);
}

Error StreamCalls::join(std::span<void* const> streams) {
  joined_.clear();
  for (void* const raw : streams) {
    const auto stream = static_cast<cuda::CUstream>(raw);
    if (cuda::is_default(stream) || device_.owns(stream)) joined_.push_back(stream);
  }
  return join_.join(joined_);
}

// A refused call changes nothing, of none of its compressors.
Error StreamCalls::check_places(const CompressedArgs& args) {
  const bool on_device = uses_device(args);
  if (on_device && !vectors_) {
    const Expected<CudaVectors*> found = CudaVectors::of(device_);
    if (!found) return found.error();
    vectors_ = *found;
  }
  for (const CompressedTensor& tensor : args.tensors) {
    const Compressor& compressor = *tensor.compressor;
    if (Error error = compressor.check_move_to(on_device ? vectors_ : nullptr)) return error;
  }
  return {};
}

Error StreamCalls::take_compressors(const CompressedArgs& args, const HeldCompressors& held) {
  if (Error error = place_compressors(args)) return error;
  for (const auto& compressor : held.all()) host_.compressors.bind(compressor);
  return {};
}

// Accumulators go to where the vectors are. Between calls, for all compressors are claimed.
Error StreamCalls::place_compressors(const CompressedArgs& args) {
  if (Error error = check_places(args)) return error;
  const bool on_device = uses_device(args);
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) all += tensor.count;
  for (const CompressedTensor& tensor : args.tensors) {
    Compressor& compressor = *tensor.compressor;
    if (Error error = compressor.move_to(on_device ? vectors_ : nullptr)) return error;
    compressor.shape(tensor.count, tensor.type);
    const Spec& spec = compressor.spec();
    const bool dense = !spec.sparse() || spec.by_host ||
                       (spec.may_bypass && context_.chooser->is_faster_dense(spec, all, nullptr));
    if (on_device && dense) compressor.make_room_for_whole();
  }
  return {};
}

bool StreamCalls::has_numbers_left(const CollectiveArgs&) {
  const std::lock_guard lock(mutex_);
  return captured_.has_room();
}

bool StreamCalls::has_numbers_left(const PairArgs& args) {
  const std::lock_guard lock(mutex_);
  return captured_pairs_.has_room(args.messages);
}

// Before anything is captured: a wait in a graph cannot be taken back. Drivers tell a while after
// the last graph was destroyed, and to refuse what other ranks capture puts this one out of step.
template <class Args>
Error StreamCalls::check_numbers_left(const Args& args, cuda::CUstream stream) {
  if (has_numbers_left(args)) return {};
  const Expected<cuda::CaptureInfo> info = cuda::capture_of(device_.driver(), stream);
  if (!info) return info.error();
  if (!info->active) return {};
  const std::uint64_t begin_ns = monotonic_ns();
  while (monotonic_ns() - begin_ns < told_gone_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (has_numbers_left(args)) return {};
  }
  constexpr std::uint32_t most = CapturedNumbers::most;
  return {Code::invalid_usage,
          fmt::format("stream {}: graphs hold too many captured calls of this communicator, or "
                      "messages to or from one rank: {} at a time, expected the graphs of each one "
                      "after the first {} to be gone before {} more are captured; destroy them, or "
                      "capture with a new communicator",
                      static_cast<const void*>(stream), most, most / 2, most / 2)};
}

Error StreamCalls::check_capture(const CollectiveArgs& args, cuda::CUstream stream) {
  return check_numbers_left(args, stream);
}

Error StreamCalls::check_capture(const PairArgs& args, cuda::CUstream stream) {
  return check_numbers_left(args, stream);
}

Error StreamCalls::check_capture(const CompressedArgs&, cuda::CUstream stream) {
  const Expected<cuda::CaptureInfo> info = cuda::capture_of(device_.driver(), stream);
  if (!info) return info.error();
  if (!info->active) return {};
  return {Code::invalid_usage,
          fmt::format("stream {} is being captured, expected one that is not: each compressed call "
                      "is another step, which a replay would not be",
                      static_cast<const void*>(stream))};
}

Error StreamCalls::check_placed(const CompressedArgs& args) {
  for (const CompressedTensor& tensor : args.tensors) {
    if (Error error = check_reached(tensor)) return error;
  }
  if (Error error = check_compressed_call(context_, args.tensors)) return error;
  return check_places(args);
}

Error StreamCalls::check_placed(const CollectiveArgs& args) {
  if (args.count == 0 || host_.runner.is_alone(args)) return {};
  if (Error error = check_reached("send", args.send.data)) return error;
  if (Error error = check_reached("recv", args.recv.data)) return error;
  return check_reached("the scalar of op", args.factor.where);
}

Error StreamCalls::check_placed(const PairArgs& args) {
  for (const Message& message : args.messages) {
    if (message.data.size == 0) continue;
    const char* const argument = message.sends ? "send" : "recv";
    if (Error error = check_reached(argument, message.data.data)) return error;
  }
  return {};
}

// Outside of any call, so that none asks the driver for memory while streams wait for it.
Error StreamCalls::reserve(const CallArgs& args, cuda::CUstream stream) {
  const void* const identity = cuda::identity_of(stream);
  if (std::find(streams_.begin(), streams_.end(), identity) == streams_.end()) {
    streams_.push_back(identity);
    warn_of_priority(stream);
  }
  const Need need = need_of(args, context_);
  device_need_ = std::max(device_need_, need.device);
  pinned_need_ = std::max(pinned_need_, need.pinned);
  if (Error error = compute_->scratch().reserve(streams_.size() * device_need_)) return error;
  return pinned_.scratch().reserve(streams_.size() * pinned_need_);
}

// Streams of one priority share hardware queues, where one that waits for a call of ours holds up
// the stream of ours that is to end it.
void StreamCalls::warn_of_priority(cuda::CUstream stream) const {
  static std::once_flag told;
  int priority = 0;
  if (compute_->workers()) return;
  const cuda::CUresult asked = device_.driver().stream_get_priority(stream, &priority);
  if (asked != cuda::kSuccess || priority != compute_->priority()) return;
  std::call_once(told, [&] {
    log(LogLevel::warn,
        fmt::format("stream {} has priority {}, as Pith's own streams have: with more of them than "
                    "hardware queues (CUDA_DEVICE_MAX_CONNECTIONS, 8) calls may hang; lower it, or "
                    "set PITH_CUDA_STEPS=worker",
                    static_cast<const void*>(stream), priority));
  });
}

// Precondition: the device's context is current.
Error StreamCalls::check_context(const CallArgs& args, cuda::CUstream stream) const {
  bool ours = false;
  if (cuda::is_default(stream)) {
    const Expected<cuda::Device*> device = device_of(args, stream);
    if (!device) return device.error();
    ours = *device == &device_;
  } else {
    ours = device_.owns(stream);
  }
  if (ours) return {};
  return {Code::invalid_usage,
          fmt::format("stream {} belongs to another context than this communicator's first one",
                      static_cast<const void*>(stream))};
}

// What it takes if it is compressed, beside what it takes as it is.
Error StreamCalls::prepare_compressed(const CallArgs& args, const LateChoice& choice,
                                      cuda::CUstream stream) {
  if (!choice.candidate()) return {};
  CompressedTensor tensor = *choice.candidate();
  if (uses_device(args)) tensor.device = compute_.get();
  const CompressedArgs compressed{std::span(&tensor, 1), host_.links.tuning()};
  if (Error error = check_compressed_call(context_, compressed.tensors)) return error;
  if (choice.is_fresh()) {
    if (Error error = without_throwing([&] { return place_compressors(compressed); })) return error;
  }
  return reserve(compressed, stream);
}

Error StreamCalls::make_room(CallArgs args, void* raw_stream, const LateChoice& choice) {
  const auto stream = static_cast<cuda::CUstream>(raw_stream);
  const cuda::Current current(device_);
  if (Error error = check_context(args, stream)) return error;
  if (Error error = place(args, device_.driver(), *compute_)) return error;
  return prepare_compressed(args, choice, stream);
}

Error StreamCalls::check_reached(const CompressedTensor& tensor) const {
  const SparseOutput& pairs = tensor.sparse;
  if (Error error = check_reached("n", pairs.count)) return error;
  if (tensor.count == 0) return {};
  if (Error error = check_reached("send", tensor.send)) return error;
  if (Error error = check_reached("recv", tensor.recv)) return error;
  if (pairs.capacity == 0) return {};
  if (Error error = check_reached("indices", pairs.indices)) return error;
  return check_reached("values", pairs.values);
}

// Copies of the driver's go anywhere; a worker's are loads and stores of this device.
Error StreamCalls::check_reached(const char* argument, const void* memory) const {
  if (!memory || !compute_->workers()) return {};
  const Expected<cuda::Where> where = cuda::where_is(device_.driver(), memory);
  if (!where || *where != cuda::Where::device) return where.error();
  const Expected<cuda::Device*> device = cuda::Device::of_memory(memory);
  if (!device || *device == &device_) return device.error();
  return {Code::invalid_usage,
          fmt::format("{} is {}, another device's memory than the stream's, expected the same "
                      "one's where workers run the steps of calls (PITH_CUDA_STEPS)",
                      argument, memory)};
}

}  // namespace pith
