#include "streams/stream_calls.hpp"

#include <fmt/format.h>

#include <utility>

#include "collectives/compressed_check.hpp"
#include "core/run_together.hpp"
#include "streams/stream_memory.hpp"

namespace pith {

namespace {

// The first call of up to this many bytes needs no new scratch.
constexpr std::size_t prepared_bytes = std::size_t{1} << 20;

}  // namespace

StreamCalls::StreamCalls(const StreamHost& host, const StreamOptions& options,
                         std::unique_ptr<StreamDevice> device)
    : host_(host),
      device_(std::move(device)),
      scratch_(*device_),
      compressors_(*device_, host.compressors),
      checks_(*device_, host.runner, compressors_),
      gate_(device_->cuda(), device_->compute().workers()),
      join_(device_->cuda()),
      order_(host.links.state(), host.links.rank(), options.warn_s,
             [](StreamOrder::Entry& held) {
               auto& call = static_cast<StreamCall&>(held);
               call.owner.begin(call);
             }),
      captured_(host.links.engine(), device_->driver(), host.links.size()),
      execution_(host, *device_, gate_, order_, captured_, pool_) {
  device_->compute().on_error(
      [](void* self, const Error& error) { static_cast<StreamCalls*>(self)->device_failed(error); },
      this);
  device_->compute().watch_while(&host_.runner.under_way().not_begun);
  Engine& engine = host.links.engine();
  engine.own();
  engine.add(device_->compute());
  engine.add(gate_);
  engine.add(order_);
  execution_.poll_with(engine);
  engine.disown();
}

Expected<std::unique_ptr<StreamCalls>> StreamCalls::create(const StreamHost& host,
                                                           const StreamOptions& options,
                                                           cuda::Device& device) {
  Expected<std::unique_ptr<StreamDevice>> made = StreamDevice::create(host.links, options, device);
  if (!made) return made.error();
  if (Error error = host.links.engine().join_background()) return error;
  return std::unique_ptr<StreamCalls>(new StreamCalls(host, options, std::move(*made)));
}

StreamCalls::~StreamCalls() {
  device_->compute().on_error(nullptr, nullptr);
  device_->compute().watch_while(nullptr);
}

// Messages that contain the output of failed kernels must not be sent.
void StreamCalls::device_failed(const Error& error) {
  const int rank = host_.links.rank();
  host_.revocation.revoke_for_loss(
      Error(error.code(), fmt::format("rank {}: {}", rank, error.message()), rank));
}

// A single rank mostly copies, and needs nothing prepared.
Error StreamCalls::prepare() {
  if (host_.links.size() == 1) return {};
  if (Error error = join_.prepare()) return error;
  CollectiveArgs args;
  args.count = prepared_bytes;
  args.type = DType::u8;
  host_.runner.tasks().complete(args);
  return scratch_.prepare(args);
}

Error StreamCalls::enqueue(CallArgs args, void* raw_stream, HeldCompressors held, bool grouped,
                           LateChoice* choice) {
  const auto stream = static_cast<cuda::CUstream>(raw_stream);
  order_.take_turn(grouped);
  const cuda::Current current(device_->cuda());  // the caller's thread may have no context
  if (Error error = check_and_place(args, stream)) return error;
  host_.runner.tasks().complete(args);
  used_ = true;  // a refused call does not decide the communicator's device
  const auto* const dense = std::get_if<CollectiveArgs>(&args);
  if (dense && host_.runner.is_alone(*dense)) return copy(*dense, stream);
  if (Error error = reserve(args, stream, held, choice)) return error;
  device_->look_for_freed();
  StreamCall& call = take_call(args, std::move(held), choice);
  const Error error = gate_.enqueue(stream, call);
  if (!error) {
    execution_.admit(call, stream);
    return {};
  }
  execution_.let_go(call);
  pool_.give_back(call);
  return error;
}

Error StreamCalls::check_and_place(CallArgs& args, cuda::CUstream stream) {
  if (Error error = checks_.check_context(args, stream)) return error;
  const auto captured = [&](const auto& kind) { return captured_.check(kind, stream); };
  if (Error error = std::visit(captured, args)) return error;
  if (Error error = place(args, device_->driver(), device_->compute())) return error;
  return std::visit([&](const auto& kind) { return checks_.check_placed(kind); }, args);
}

Error StreamCalls::reserve(const CallArgs& args, cuda::CUstream stream, const HeldCompressors& held,
                           const LateChoice* choice) {
  if (Error error = scratch_.reserve(args, stream)) return error;
  if (choice) {
    if (Error error = prepare_compressed(args, *choice, stream)) return error;
  }
  const auto* const compressed = std::get_if<CompressedArgs>(&args);
  if (!compressed) return {};
  return without_throwing([&] { return compressors_.take(*compressed, held); });
}

StreamCall& StreamCalls::take_call(const CallArgs& args, HeldCompressors held, LateChoice* choice) {
  StreamCall& call = pool_.take(execution_);
  std::visit([&](const auto& kind) { call.keep(kind); }, args);
  call.held = std::move(held);
  call.choice = choice;
  call.on_device = uses_device(args);
  call.enters = call.on_device;
  if (const auto* const dense = std::get_if<CollectiveArgs>(&args)) {
    call.looks = device_->look_at(*dense);
  }
  return call;
}

// A collective of one rank.
Error StreamCalls::copy(const CollectiveArgs& args, cuda::CUstream stream) const {
  if (args.send.size == 0 || args.send.data == args.recv.data) return {};
  const cuda::CUresult copied = device_->driver().memcpy_async(
      cuda::address_of(args.recv.data), cuda::address_of(args.send.data), args.send.size, stream);
  return copied == cuda::kSuccess ? Error() : device_->cuda().error("cuMemcpyAsync", copied);
}

Error StreamCalls::join(std::span<void* const> streams) {
  joined_.clear();
  for (void* const raw : streams) {
    const auto stream = static_cast<cuda::CUstream>(raw);
    if (cuda::is_default(stream) || device_->cuda().owns(stream)) joined_.push_back(stream);
  }
  return join_.join(joined_);
}

// Reserves what the call needs if it is compressed, in addition to what it needs uncompressed.
Error StreamCalls::prepare_compressed(const CallArgs& args, const LateChoice& choice,
                                      cuda::CUstream stream) {
  if (!choice.candidate()) return {};
  CompressedTensor tensor = *choice.candidate();
  if (uses_device(args)) tensor.device = &device_->compute();
  const CompressedArgs compressed{std::span(&tensor, 1), host_.links.model().tuning()};
  if (Error error = check_compressed_call(device_->context(), compressed.tensors)) return error;
  if (choice.is_fresh()) {
    const auto place_it = [&] { return compressors_.place(compressed); };
    if (Error error = without_throwing(place_it)) return error;
  }
  return scratch_.reserve(compressed, stream);
}

Error StreamCalls::make_room(CallArgs args, void* raw_stream, const LateChoice& choice) {
  const auto stream = static_cast<cuda::CUstream>(raw_stream);
  const cuda::Current current(device_->cuda());
  if (Error error = checks_.check_context(args, stream)) return error;
  if (Error error = place(args, device_->driver(), device_->compute())) return error;
  return prepare_compressed(args, choice, stream);
}

}  // namespace pith
