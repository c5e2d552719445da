#include "comm/stream_calls.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/compressed_check.hpp"
#include "comm/stream_memory.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"

namespace pith {

namespace {

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
  void count_replay();

  StreamCalls& owner;
  CollectiveArgs args;
  bool on_device = false;
  bool unsettled = false;         // the stream may go on only when no peer touches its memory
  CallRecorder::Batch recorded;   // where it consists of messages
  std::vector<Message> messages;  // what args.messages points to
  std::vector<CompressedTensor> tensors;  // what args.tensors points to
  HeldCompressors held;
  std::array<std::uint32_t, 2> looks{};  // at what it sends and receives, of views_
  LateChoice* choice = nullptr;          // until it is made
  std::optional<Call> call;
  Task<Error> task;
};

Task<Error> StreamCalls::StreamCall::run_and_report() {
  Task<Error> collective = owner.communicator_.start(*call, args);
  Error error = out_of_memory();
  if (collective) error = co_await std::move(collective);
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
  owner.let_go(*this);
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
      join_(device),
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

// Processes that share a device take turns on it, and a worker that waits for another one would use
// up its own.
bool StreamCalls::has_workers(const Communicator& communicator, const cuda::Device& device) {
  if (communicator.cuda_by_workers_) return *communicator.cuda_by_workers_;
  const std::string uuid = device.uuid();
  const auto& others = communicator.devices_of_others_;
  if (uuid.empty() || std::find(others.begin(), others.end(), uuid) == others.end()) return true;
  log(LogLevel::info,
      fmt::format(
          "rank {}: ranks of other processes use CUDA device {} too, so each step of a call "
          "is launched (PITH_CUDA_STEPS)",
          communicator.rank(), uuid));
  return false;
}

Expected<std::unique_ptr<StreamCalls>> StreamCalls::create(Communicator& communicator,
                                                           cuda::Device& device) {
  Expected<std::unique_ptr<cuda::CudaCompute>> compute = cuda::CudaCompute::create(
      device, has_workers(communicator, device) ? communicator.cuda_blocks_ : 0,
      communicator.cuda_blocks_);
  if (!compute) return compute.error();
  if (Error error = communicator.engine_->join_background()) return error;
  return std::unique_ptr<StreamCalls>(
      new StreamCalls(communicator, device, std::move(*compute), communicator.cuda_ipc_));
}

// The communicator has left the progress thread: nothing polls the gate any more.
StreamCalls::~StreamCalls() {
  compute_->on_error(nullptr, nullptr);
  compute_->watch_while(nullptr);
  unsettled_.open_all();
  for (int i = captured_alive_.load(); i > 0; --i) communicator_.engine_->background_ends();
}

// Messages that are made of what kernels should have written must not go out any more.
void StreamCalls::device_failed(const Error& error) {
  const int rank = communicator_.rank();
  communicator_.revoke_for_loss(
      Error(error.code(), fmt::format("rank {}: {}", rank, error.message()), rank));
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

Error StreamCalls::enqueue(CollectiveArgs args, void* raw_stream, HeldCompressors held,
                           bool grouped, LateChoice* choice) {
  const auto stream = static_cast<cuda::CUstream>(raw_stream);
  order_.take_turn(grouped);
  const cuda::Current current(device_);  // the caller's thread may have none
  if (Error error = check_context(args, stream)) return error;
  if (Error error = check_not_captured(args, stream)) return error;
  if (Error error = check_numbers_left(args, stream)) return error;
  if (Error error = place(args, device_.driver(), *compute_)) return error;
  if (!communicator_.is_alone(args)) {
    if (Error error = check_reached(args)) return error;
  }
  if (!args.tensors.empty()) {
    if (Error error = check_compressed_call(context_, args.tensors)) return error;
  }
  if (Error error = check_places(args)) return error;
  communicator_.complete(args);
  used_ = true;  // a call that is refused does not tell which device is the communicator's
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
  if (Error error = without_throwing([&] { return take_compressors(args, held); })) return error;
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
  if (views_) call.looks = {views_->look_at(args.send), views_->look_at(args.recv)};
  call.started = [](cuda::Passage& self) {
    auto& reached = static_cast<StreamCall&>(self);
    reached.owner.reach(reached);
  };
  call.gone = [](cuda::Passage& self) {
    auto& gone = static_cast<StreamCall&>(self);
    gone.owner.forget_captured(gone);
  };
  Error error = gate_.enqueue(stream, call);
  if (!error) {
    admit(call, stream);
    return {};
  }
  let_go(call);
  const std::lock_guard lock(mutex_);
  spare_.push_back(&call);
  return error;
}

void StreamCalls::let_go(StreamCall& call) {
  call.held.let_go();
  let_go_of_memory(call);
}

void StreamCalls::let_go_of_memory(StreamCall& call) {
  if (!views_) return;
  for (std::uint32_t& slot : call.looks) views_->let_go(std::exchange(slot, 0));
}

// What it was is not replayed any more, or has ended.
void StreamCalls::give_back(StreamCall& call) {
  const std::lock_guard lock(mutex_);
  spare_.push_back(&call);
  communicator_.engine_->background_ends();
}

// Numbered only now: a call that was refused must not put this rank out of step with the others.
void StreamCalls::admit(StreamCall& call, cuda::CUstream stream) {
  Engine& engine = communicator_.engine();
  if (call.captured) {
    admit_captured(call);
  } else {
    call.number = communicator_.number(call.args);
    communicator_.active_.fetch_add(1, std::memory_order_relaxed);
    not_begun_.fetch_add(1, std::memory_order_relaxed);
    engine.background_begins();
    order_.add(call, cuda::identity_of(stream));
  }
  gate_.publish(call);
}

void StreamCalls::admit_captured(StreamCall& call) {
  let_go_of_memory(call);  // a graph knows addresses, which may be others' memory at a replay
  {
    const std::lock_guard lock(mutex_);
    captured_pairs_.take(call.messages);
    // As when eager: of messages only their two ends know.
    const bool paired = call.args.collective == Collective::point_to_point;
    call.number = paired ? 0 : captured_.take();
  }
  // Replays may come at any time from now on.
  captured_alive_.fetch_add(1, std::memory_order_relaxed);
  communicator_.engine().background_begins();
}

// The next replay's numbers.
void StreamCalls::StreamCall::count_replay() {
  if (number != 0) number = CapturedNumbers::next_replay(number);
  for (Message& message : messages) message.number = CapturedNumbers::next_replay(message.number);
}

void StreamCalls::forget_captured(StreamCall& call) {
  {
    const std::lock_guard lock(mutex_);
    captured_pairs_.give_back(call.messages);
    if (call.number != 0) captured_.give_back(call.number);
  }
  captured_alive_.fetch_sub(1, std::memory_order_relaxed);
  give_back(call);
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
  communicator_.revoke_if_any_died();
  if (!call.captured) not_begun_.fetch_sub(1, std::memory_order_relaxed);
  if (call.captured) communicator_.active_.fetch_add(1, std::memory_order_relaxed);
  // A compressed call runs all the same: its gradients go to the accumulators.
  if (communicator_.state_.revoked && call.tensors.empty()) {
    let_go(call);
    cuda::StreamGate::open(call);
    end(call);
    return;
  }
  const std::uint64_t digest = Communicator::digest_of(call.args);
  call.recorded = communicator_.call_begins(call.number, digest, call.args);
  call.call.emplace(call.on_device ? context_ : communicator_.context_, call.number, digest);
  if (call.on_device) compute_->enter(call);
  call.task = call.run_and_report();
  call.task.handle().resume();
}

void StreamCalls::end(StreamCall& call) {
  if (call.call) {
    communicator_.call_ends(call.number, call.recorded, !communicator_.state_.revoked);
  }
  call.task = Task<Error>();
  call.call.reset();
  call.captured ? call.count_replay() : order_.remove(call);
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
  if (!call.captured) give_back(call);
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
    owner.let_go(call);  // before the stream goes on
    cuda::StreamGate::open(call);
    owner.gate_.close(call);
    owner.order_.remove(call);
    owner.give_back(call);
    owner.not_begun_.fetch_sub(1, std::memory_order_relaxed);
    owner.communicator_.active_.fetch_sub(1, std::memory_order_release);
  });
}

}  // namespace pith
