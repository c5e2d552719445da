#include "streams/streams.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.hpp"
#include "core/run_together.hpp"
#include "streams/stream_memory.hpp"

namespace pith {

Error Streams::enqueue(const CallArgs& args, void* stream, HeldCompressors held, bool grouped) {
  const bool revoked = host_.revocation.is_revoked();
  if (revoked && held.all().empty()) return host_.revocation.error();
  if (Error error = open(args, stream)) return error;
  const Error refused = calls_->enqueue(args, stream, std::move(held), grouped);
  return refused || !revoked ? refused : host_.revocation.error();
}

Error Streams::enqueue(const CallArgs& args, void* stream, LateChoice& choice, bool grouped) {
  if (host_.revocation.is_revoked()) return host_.revocation.error();
  if (Error error = open(args, stream)) return error;
  return calls_->enqueue(args, stream, {}, grouped, &choice);
}

Error Streams::make_room(const CallArgs& args, void* stream, const LateChoice& choice) {
  if (host_.revocation.is_revoked()) return host_.revocation.error();
  if (Error error = open(args, stream)) return error;
  return calls_->make_room(args, stream, choice);
}

// Errors in opening the streams, or of a revoked communicator, are left to the calls.
Error Streams::join(std::span<void* const> streams) {
  if (streams.size() < 2 || host_.revocation.is_revoked()) return {};
  const auto named = std::find_if(streams.begin(), streams.end(), [](void* stream) {
    return !cuda::is_default(static_cast<cuda::CUstream>(stream));
  });
  void* const first = named == streams.end() ? streams.front() : *named;
  if (open(CollectiveArgs(), first)) return {};
  return calls_->join(streams);
}

Error Streams::open(const CallArgs& args, void* stream) {
  if (calls_ && calls_->used()) return {};
  // Only the thread's context names a device, and it may be another communicator's.
  const bool tells = names_memory(args) || !cuda::is_default(static_cast<cuda::CUstream>(stream));
  if (calls_ && !tells) return {};
  const Expected<cuda::Device*> device = device_of(args, stream);
  return device ? open_of(**device) : device.error();
}

// The old object is kept, because the engine polls it.
Error Streams::open_of(cuda::Device& device) {
  if (calls_ && calls_->serves(device)) return {};
  Expected<std::unique_ptr<StreamCalls>> made = StreamCalls::create(host_, options_, device);
  if (!made) return made.error();
  host_.links.engine().own();
  calls_.swap(*made);
  if (*made) unused_.push_back(std::move(*made));
  host_.links.engine().disown();
  return {};
}

void Streams::prepare(void* context) {
  if (!context) return;
  const Error error = without_throwing([&]() -> Error {
    const Expected<cuda::Device*> device =
        cuda::Device::of_context(static_cast<cuda::CUcontext>(context));
    if (!device) return device.error();
    if (Error failed = open_of(**device)) return failed;
    return calls_->prepare();
  });
  if (!error) return;
  log(LogLevel::info, fmt::format("rank {}: nothing is prepared for calls on CUDA streams: {}",
                                  host_.links.rank(), error.message()));
}

void Streams::abandon() {
  if (calls_) calls_->abandon();
}

}  // namespace pith
