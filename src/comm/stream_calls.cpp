#include "comm/stream_calls.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "collectives/compressed_check.hpp"
#include "collectives/premultiply.hpp"
#include "comm/cuda_vectors.hpp"
#include "comm/stream_memory.hpp"
#include "core/clock.hpp"
#include "core/run_together.hpp"

namespace pith {

namespace {

// The first call of up to so many bytes finds its scratch; where there are very many ranks, a part.
constexpr std::size_t prepared_bytes = std::size_t{1} << 20;
constexpr std::size_t most_prepared_bytes = std::size_t{64} << 20;

// A captured call's number: captured_numbers | k << replay_bits | replay.
constexpr unsigned replay_bits = 14;
constexpr std::uint32_t most_captured = StreamCalls::captured_numbers >> replay_bits;

// Scratch of one call, rounding included: chunks in flight, and all vectors at once where they are
// short enough for one-shot algorithms.
struct Need {
  std::size_t device;
  std::size_t pinned;
};

// Each message of a pair is staged piece by piece.
Need need_of_messages(const CollectiveArgs& args) {
  Need need{0, 0};
  for (const Message& message : args.messages) {
    need.pinned += 2 * std::min(message.data.size, args.tuning.chunk_bytes);
  }
  return need;
}

// Lists that wait to be elected, results on their way, and messages; or the vectors of a dense one.
Need need_of_tensors(const CollectiveArgs& args, std::size_t ranks) {
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

Need need_of(const CollectiveArgs& args, int ranks) {
  if (args.collective == Collective::point_to_point) return need_of_messages(args);
  if (!args.tensors.empty()) return need_of_tensors(args, static_cast<std::size_t>(ranks));
  constexpr std::size_t short_bytes = std::size_t{1} << 20;
  constexpr std::size_t strands = 16;
  const auto p = static_cast<std::size_t>(ranks);
  const std::size_t vector = std::max(args.send.size, args.recv.size);
  const std::size_t chunk = std::min(vector, args.tuning.chunk_bytes);
  const std::size_t whole = std::min(vector, short_bytes);
  const std::size_t collected = 4 * args.tuning.chunk_bytes;
  const std::size_t work = std::min(vector, std::max(collected, premultiply_room(args.tuning, p)));
  return {2 * ((p + strands) * chunk + (p + 1) * whole + 2 * work),
          2 * (strands * chunk + 4 * whole + 2 * work)};
}

// By rank: who runs on this rank's host.
std::vector<bool> ranks_nearby(const CallContext& context) {
  std::vector<bool> nearby(static_cast<std::size_t>(context.size), false);
  const Hosts* hosts = context.hosts;
  for (int place = 0; hosts && place < context.size; ++place) {
    const auto rank = static_cast<std::size_t>(context.order->rank_at(place));
    nearby[rank] = hosts->host_of(place) == hosts->host_of(context.rank);
  }
  return nearby;
}

}  // namespace

struct StreamCalls::StreamCall : cuda::Passage, Work, StreamOrder::Entry {
  explicit StreamCall(StreamCalls& o) : owner(o) { Entry::args = &args; }
  FrameArena& frame_arena() const { return owner.communicator_.engine_->arena(); }
  Task<Error> run_and_report();

  StreamCalls& owner;
  CollectiveArgs args;
  bool on_device = false;
  bool unsettled = false;  // the stream may go on only when no peer touches its memory
  std::uint32_t replays = 0;
  std::uint32_t running = 0;              // the number of the call that runs
  CallRecorder::Batch recorded;           // where it consists of messages
  std::vector<Message> messages;          // what args.messages points to
  std::vector<CompressedTensor> tensors;  // what args.tensors points to
  HeldCompressors held;
  LateChoice* choice = nullptr;  // until it is made
  std::optional<Call> call;
  Task<Error> task;
};

Task<Error> StreamCalls::StreamCall::run_and_report() {
  Task<Error> collective = owner.communicator_.start(*call, args);
  Error error = co_await std::move(collective);
  error = Communicator::told_to_all(*call, args, error);
  unsettled = error && owner.communicator_.peers_may_touch();
  if (unsettled && on_device) {
    co_await call->until(owner.compute_->run<CopyKernel>({nullptr, nullptr, 0}));
  } else if (on_device) {
    // The stream goes on behind the last kernel, without waking the host first. Even a failed call
    // waits for its kernels: they use the caller's memory.
    const Fence last = tensors.empty() ? owner.compute_->open_after_all(*this)
                                       : owner.compute_->run<CopyKernel>({nullptr, nullptr, 0});
    co_await call->until(last);
    if (owner.compute_->error()) error = call->fail(owner.compute_->error());
  }
  held.let_go();
  const bool opens = !on_device || !tensors.empty() || owner.compute_->error();
  // Its slot is another call's as soon as this one has ended.
  if (opens && !unsettled) co_await call->until(owner.compute_->open(*this));
  // The frame is still running; the next turn of the engine takes it apart.
  run = [](Work& self) {
    auto& ended = static_cast<StreamCall&>(self);
    ended.owner.end(ended);
  };
  owner.communicator_.engine_->post(*this);
  co_return error;
}

StreamCalls::StreamCalls(Communicator& communicator, cuda::Device& device,
                         std::unique_ptr<cuda::CudaCompute> compute, bool reached_by_peers)
    : communicator_(communicator),
      device_(device),
      pinned_(device, communicator.compute_),
      compute_(std::move(compute)),
      context_(communicator.context_),
      gate_(device, compute_->workers()),
      order_(communicator.state_, communicator.rank(), communicator.warn_s(),
             [](StreamOrder::Entry& held) {
               auto& call = static_cast<StreamCall&>(held);
               call.owner.begin(call);
             }),
      unsettled_(*this),
      undecided_(*this),
      captured_pairs_(static_cast<std::size_t>(communicator.size())) {
  context_.compute = compute_.get();
  context_.host = &pinned_;
  if (context_.views && reached_by_peers) {
    compute_->set_peer_memory(&views_.emplace(device, ranks_nearby(context_)));
  }
  compute_->on_error(
      [](void* self, const Error& error) { static_cast<StreamCalls*>(self)->device_failed(error); },
      this);
  compute_->watch_while(&not_begun_);
  Engine& engine = communicator.engine();
  engine.own();
  engine.add(*compute_);
  engine.add(gate_);
  engine.add(order_);
  engine.add(unsettled_);
  engine.add(undecided_);
  engine.disown();
}

Expected<std::unique_ptr<StreamCalls>> StreamCalls::create(Communicator& communicator,
                                                           cuda::Device& device) {
  Expected<std::unique_ptr<cuda::CudaCompute>> compute =
      cuda::CudaCompute::create(device, communicator.cuda_worker_blocks_);
  if (!compute) return compute.error();
  if (Error error = communicator.engine_->join_background()) return error;
  return std::unique_ptr<StreamCalls>(
      new StreamCalls(communicator, device, std::move(*compute), communicator.cuda_ipc_));
}

// One rank alone copies, most of the time.
Error StreamCalls::prepare() {
  if (communicator_.size() == 1) return {};
  CollectiveArgs args;
  args.count = prepared_bytes;
  args.type = DType::u8;
  communicator_.complete(args);
  const Need need = need_of(args, communicator_.size());
  const auto reserve = [](cuda::ScratchPool& pool, std::size_t bytes) {
    return pool.reserve(std::min(bytes, most_prepared_bytes));
  };
  if (Error error = reserve(compute_->scratch(), need.device)) return error;
  return reserve(pinned_.scratch(), need.pinned);
}

// The communicator has left the progress thread: nothing polls the gate any more.
StreamCalls::~StreamCalls() {
  compute_->on_error(nullptr, nullptr);
  compute_->watch_while(nullptr);
  unsettled_.open_all();
  if (captured_ > 0) communicator_.engine_->background_ends();
}

// Messages that are made of what kernels should have written must not go out any more.
void StreamCalls::device_failed(const Error& error) {
  const int rank = communicator_.rank();
  communicator_.revoke_for_loss(
      Error(error.code(), fmt::format("rank {}: {}", rank, error.message()), rank));
}

// Accumulators go to where the vectors are. Between calls, for all compressors are claimed.
Error StreamCalls::place_compressors(const CollectiveArgs& args) {
  const bool on_device = uses_device(args);
  if (on_device && !vectors_) {
    const Expected<CudaVectors*> found = CudaVectors::of(device_);
    if (!found) return found.error();
    vectors_ = *found;
  }
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) all += tensor.count;
  for (const CompressedTensor& tensor : args.tensors) {
    Compressor& compressor = *tensor.compressor;
    if (Error error = compressor.move_to(on_device ? vectors_ : nullptr)) return error;
    compressor.shape(tensor.count, tensor.type);
    const Spec& spec = compressor.spec();
    const bool dense = !spec.sparse() || spec.by_host ||
                       (spec.may_bypass &&
                        is_faster_dense(spec, all, communicator_.size(), context_.choice.views));
    if (on_device && dense) compressor.make_room_for_whole();
  }
  return {};
}

Error StreamCalls::check_not_captured(const CollectiveArgs& args, cuda::CUstream stream) const {
  if (args.tensors.empty()) return {};
  const Expected<cuda::CaptureInfo> info = cuda::capture_of(device_.driver(), stream);
  if (!info) return info.error();
  if (!info->active) return {};
  return {Code::invalid_usage,
          fmt::format("stream {} is being captured, expected one that is not: each compressed call "
                      "is another step, which a replay would not be",
                      static_cast<const void*>(stream))};
}

// Outside of any call, so that none asks the driver for memory while streams wait for it.
Error StreamCalls::reserve(const CollectiveArgs& args, cuda::CUstream stream) {
  const void* const identity = cuda::identity_of(stream);
  if (std::find(streams_.begin(), streams_.end(), identity) == streams_.end()) {
    streams_.push_back(identity);
  }
  const Need need = need_of(args, communicator_.size());
  device_need_ = std::max(device_need_, need.device);
  pinned_need_ = std::max(pinned_need_, need.pinned);
  if (Error error = compute_->scratch().reserve(streams_.size() * device_need_)) return error;
  return pinned_.scratch().reserve(streams_.size() * pinned_need_);
}

// Precondition: the device's context is current.
Error StreamCalls::check_context(const CollectiveArgs& args, cuda::CUstream stream) const {
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

StreamCalls::StreamCall& StreamCalls::take_call() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) {
    all_.push_back(std::make_unique<StreamCall>(*this));
    spare_.push_back(all_.back().get());
  }
  StreamCall& call = *spare_.back();
  spare_.pop_back();
  return call;
}

// What it takes if it is compressed, beside what it takes as it is.
Error StreamCalls::prepare_compressed(const CollectiveArgs& args, const LateChoice& choice,
                                      cuda::CUstream stream) {
  if (!choice.candidate()) return {};
  CompressedTensor tensor = *choice.candidate();
  if (uses_device(args)) tensor.device = compute_.get();
  CollectiveArgs compressed;
  compressed.tensors = std::span(&tensor, 1);
  communicator_.complete(compressed);
  if (Error error = check_compressed_call(context_, compressed.tensors)) return error;
  if (choice.is_fresh()) {
    if (Error error = without_throwing([&] { return place_compressors(compressed); })) return error;
  }
  return reserve(compressed, stream);
}

// Copies of the driver's go anywhere; a worker's are loads and stores of this device.
Error StreamCalls::check_reached(const CollectiveArgs& args) const {
  if (!compute_->workers()) return {};
  const auto check = [&](Bytes memory) -> Error {
    if (!memory.data || memory.size == 0 || memory.kind != MemoryKind::cuda) return {};
    const Expected<cuda::Where> where = cuda::where_is(device_.driver(), memory.data);
    if (!where || *where != cuda::Where::device) return where.error();
    const Expected<cuda::Device*> device = cuda::Device::of_memory(memory.data);
    if (!device || *device == &device_) return device.error();
    return {Code::invalid_usage,
            fmt::format("memory {} is another device's than the stream, expected the same one's "
                        "where workers run the steps of calls (PITH_CUDA_STEPS)",
                        static_cast<const void*>(memory.data))};
  };
  for (const Message& message : args.messages) {
    if (Error error = check(message.data)) return error;
  }
  if (Error error = check(args.send)) return error;
  return check(args.recv);
}

Error StreamCalls::enqueue(CollectiveArgs args, void* raw_stream, HeldCompressors held,
                           bool grouped, LateChoice* choice) {
  const auto stream = static_cast<cuda::CUstream>(raw_stream);
  used_ = true;
  order_.take_turn(grouped);
  const cuda::Current current(device_);  // the caller's thread may have none
  if (Error error = check_context(args, stream)) return error;
  if (Error error = check_not_captured(args, stream)) return error;
  if (Error error = place(args, device_.driver(), *compute_)) return error;
  if (!args.tensors.empty()) {
    if (Error error = check_compressed_call(context_, args.tensors)) return error;
  }
  if (Error error = without_throwing([&] { return place_compressors(args); })) return error;
  if (Error error = check_reached(args)) return error;
  communicator_.complete(args);
  if (communicator_.is_alone(args)) {
    if (args.send.size == 0 || args.send.data == args.recv.data) return {};
    const cuda::CUresult copied = device_.driver().memcpy_async(
        cuda::address_of(args.recv.data), cuda::address_of(args.send.data), args.send.size, stream);
    return copied == cuda::kSuccess ? Error() : device_.error("cuMemcpyAsync", copied);
  }
  if (Error error = reserve(args, stream)) return error;
  if (choice) {
    if (Error error = prepare_compressed(args, *choice, stream)) return error;
  }
  if (views_) views_->look_for_freed();
  StreamCall& call = take_call();
  call.args = args;
  call.messages.assign(args.messages.begin(), args.messages.end());
  call.args.messages = call.messages;
  call.tensors.assign(args.tensors.begin(), args.tensors.end());
  call.args.tensors = call.tensors;
  call.held = std::move(held);
  call.choice = choice;
  call.on_device = uses_device(args);
  call.enters = call.on_device;
  call.started = [](cuda::Passage& self) {
    auto& reached = static_cast<StreamCall&>(self);
    reached.owner.reach(reached);
  };
  Error error = gate_.enqueue(stream, call);
  if (!error) error = admit(call, stream);
  if (error && !call.captured) {
    call.held.let_go();
    const std::lock_guard lock(mutex_);
    spare_.push_back(&call);
  }
  return error;
}

// Numbered only now: a call that was refused must not put this rank out of step with the others.
Error StreamCalls::admit(StreamCall& call, cuda::CUstream stream) {
  Engine& engine = communicator_.engine();
  if (call.captured) {
    if (Error error = admit_captured(call)) return error;
  } else {
    call.number = communicator_.number(call.args);
    communicator_.active_.fetch_add(1, std::memory_order_relaxed);
    not_begun_.fetch_add(1, std::memory_order_relaxed);
    engine.background_begins();
    order_.add(call, cuda::identity_of(stream));
  }
  gate_.publish(call);
  return {};
}

Error StreamCalls::admit_captured(StreamCall& call) {
  const auto full = [](std::uint32_t captured) {
    return captured < most_captured
               ? Error()
               : Error(Code::invalid_usage,
                       fmt::format("a communicator can have {} calls captured", most_captured));
  };
  if (Error error = full(captured_)) return error;
  captured_pairs_.take(call.messages);
  for (Message& message : call.messages) {
    if (Error error = full(message.number)) return error;
    message.number = captured_numbers | message.number << replay_bits;
  }
  call.number = captured_numbers | captured_ << replay_bits;
  call.replays = 0;
  // Replays may come at any time from now on.
  if (captured_++ == 0) communicator_.engine().background_begins();
  return {};
}

void StreamCalls::reach(StreamCall& call) {
  if (call.captured || order_.reach(call)) begin(call);
}

void StreamCalls::begin(StreamCall& call) { call.choice ? undecided_.add(call) : start(call); }

bool StreamCalls::Undecided::can_start(const StreamCall& call) const {
  return owner_.communicator_.state_.revoked || call.choice->ready();
}

// One that ends at once lets others begin, which may come here meanwhile.
bool StreamCalls::Undecided::progress() {
  bool moved = false;
  looked_at_.swap(calls_);
  for (StreamCall* call : looked_at_) {
    const bool starts = can_start(*call);
    starts ? owner_.decide(*call) : calls_.push_back(call);
    moved |= starts;
  }
  looked_at_.clear();
  return moved;
}

bool StreamCalls::Undecided::arm() {
  return std::none_of(calls_.begin(), calls_.end(),
                      [this](const StreamCall* call) { return can_start(*call); });
}

// What is left of a revoked communicator is not decided any more: start() ends it.
void StreamCalls::decide(StreamCall& call) {
  LateChoice& choice = *std::exchange(call.choice, nullptr);
  if (communicator_.state_.revoked) return start(call);
  if (choice.candidate()) call.tensors.assign(1, *choice.candidate());
  if (std::shared_ptr<Compressor> compressor = choice.take()) {
    call.tensors[0].device = call.on_device ? compute_.get() : nullptr;
    CollectiveArgs compressed;
    compressed.tensors = call.tensors;
    communicator_.complete(compressed);
    call.args = compressed;
    std::vector claimed{std::move(compressor)};
    call.held = HeldCompressors(std::move(claimed));
  } else {
    call.tensors.clear();
  }
  start(call);
}

void StreamCalls::start(StreamCall& call) {
  std::uint32_t number = call.number;
  if (!call.captured) not_begun_.fetch_sub(1, std::memory_order_relaxed);
  if (call.captured) {
    communicator_.active_.fetch_add(1, std::memory_order_relaxed);
    constexpr std::uint32_t replay_mask = (1u << replay_bits) - 1;
    const std::uint32_t replay = call.replays++ & replay_mask;
    number |= replay;
    for (Message& message : call.messages) {
      message.number = (message.number & ~replay_mask) | replay;
    }
  }
  // A compressed call runs all the same: its gradients go to the accumulators.
  if (communicator_.state_.revoked && call.tensors.empty()) {
    cuda::StreamGate::open(call);
    end(call);
    return;
  }
  const std::uint64_t digest = Communicator::digest_of(call.args);
  call.running = number;
  call.recorded = communicator_.call_begins(number, digest, call.args);
  call.call.emplace(call.on_device ? context_ : communicator_.context_, number, digest);
  if (call.on_device) compute_->enter(call);
  call.task = call.run_and_report();
  call.task.handle().resume();
}

void StreamCalls::end(StreamCall& call) {
  if (call.call) {
    communicator_.call_ends(call.running, call.recorded, !communicator_.state_.revoked);
  }
  call.task = Task<Error>();
  call.call.reset();
  if (!call.captured) order_.remove(call);
  if (call.unsettled) {
    unsettled_.add(call);
  } else {
    release(call);
  }
  order_.begin_held();  // while this one counts: those that end at once are not the last
  communicator_.active_.fetch_sub(1, std::memory_order_release);
  communicator_.settle();
}

void StreamCalls::release(StreamCall& call) {
  call.unsettled = false;
  gate_.close(call);
  if (call.captured) return;
  const std::lock_guard lock(mutex_);
  spare_.push_back(&call);
  communicator_.engine_->background_ends();
}

void StreamCalls::Unsettled::open_all() {
  std::vector<StreamCall*> ended;
  ended.swap(calls_);
  for (StreamCall* call : ended) {
    owner_.compute_->wait(owner_.compute_->open(*call));
    owner_.release(*call);
  }
  count_.store(0, std::memory_order_release);
}

bool StreamCalls::Unsettled::progress() {
  if (calls_.empty()) return false;
  owner_.communicator_.settle();  // what kept it from settling may have been a call just enqueued
  if (!owner_.communicator_.settled(monotonic_ns())) return false;
  open_all();
  return true;
}

bool StreamCalls::Unsettled::arm() {
  if (!busy()) return true;
  sched_yield();
  return false;
}

void StreamCalls::abandon() {
  order_.begin_held();
  gate_.abandon([](cuda::Passage& self) {
    auto& call = static_cast<StreamCall&>(self);
    StreamCalls& owner = call.owner;
    call.held.let_go();  // before the stream goes on
    cuda::StreamGate::open(call);
    owner.gate_.close(call);
    owner.order_.remove(call);
    const std::lock_guard lock(owner.mutex_);
    owner.spare_.push_back(&call);
    owner.communicator_.engine_->background_ends();
    owner.not_begun_.fetch_sub(1, std::memory_order_relaxed);
    owner.communicator_.active_.fetch_sub(1, std::memory_order_release);
  });
}

}  // namespace pith
