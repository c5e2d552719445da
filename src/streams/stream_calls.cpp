#include "streams/stream_calls.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"
#include "streams/stream_memory.hpp"

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

std::optional<bool> workers_asked_for(const Settings& settings) {
  if (settings.cuda_steps == "launch" || settings.cuda_launches_block) return false;
  if (settings.cuda_steps == "worker" || settings.one_cuda_connection) return true;
  return std::nullopt;
}

double warn_s_of(const Settings& settings) {
  constexpr double longest_s = 10;
  return settings.timeout > 0 ? std::min(longest_s, settings.timeout / 2) : longest_s;
}

// Processes that share a device take turns on it, and a worker that waits for another one would use
// up its own.
bool has_workers(const StreamOptions& options, int rank, const cuda::Device& device) {
  if (options.by_workers) return *options.by_workers;
  const std::string uuid = device.uuid();
  const auto& others = options.devices_of_others;
  if (uuid.empty() || std::find(others.begin(), others.end(), uuid) == others.end()) return true;
  log(LogLevel::info,
      fmt::format(
          "rank {}: ranks of other processes use CUDA device {} too, so each step of a call "
          "is launched (PITH_CUDA_STEPS)",
          rank, uuid));
  return false;
}

}  // namespace

StreamOptions::StreamOptions(const Settings& settings)
    : cuda_ipc(settings.cuda_ipc),
      by_workers(workers_asked_for(settings)),
      blocks(settings.cuda_blocks),
      warn_s(warn_s_of(settings)) {}

struct StreamCalls::StreamCall : cuda::StreamEntry, Work, StreamOrder::Entry {
  explicit StreamCall(StreamCalls& o) : owner(o) { Entry::args = &args; }
  FrameArena& frame_arena() const { return owner.host_.links.engine().arena(); }
  // What the arguments point to is the call's own from now on.
  void keep(const CollectiveArgs& given);
  void keep(const CompressedArgs& given);
  void keep(const PairArgs& given);
  Task<Error> run_and_report();
  void count_replay();

  StreamCalls& owner;
  CallArgs args;
  bool on_device = false;
  // It has gradients to keep, also where the communicator is revoked; and compressors, which the
  // host lets go of before the stream goes on.
  bool compressed = false;
  bool unsettled = false;         // the stream may go on only when no peer touches its memory
  std::vector<Message> messages;  // of messages of pairs
  std::vector<CompressedTensor> tensors;  // of a compressed call, or one that may become it
  HeldCompressors held;
  std::array<std::uint32_t, 2> looks{};  // at what it sends and receives, of views_
  LateChoice* choice = nullptr;          // until it is made
  RunningCall running;
  Task<Error> task;
};

void StreamCalls::StreamCall::keep(const CollectiveArgs& given) {
  compressed = false;
  args = given;
}

void StreamCalls::StreamCall::keep(const CompressedArgs& given) {
  compressed = true;
  tensors.assign(given.tensors.begin(), given.tensors.end());
  args = CompressedArgs{tensors, given.tuning};
}

void StreamCalls::StreamCall::keep(const PairArgs& given) {
  compressed = false;
  messages.assign(given.messages.begin(), given.messages.end());
  args = PairArgs{messages, given.chunk_bytes};
}

Task<Error> StreamCalls::StreamCall::run_and_report() {
  Task<Error> task_of_kind = owner.host_.runner.start(running, args);
  Error error = out_of_memory();
  if (task_of_kind) error = co_await std::move(task_of_kind);
  error = owner.host_.runner.conclude(running, args, error);
  std::optional<Call>& call = running.call;
  unsettled = error && owner.host_.revocation.settling().peers_may_touch();
  if (unsettled && on_device) {
    co_await call->until(owner.compute_->run<CopyKernel>({nullptr, nullptr, 0}));
  } else if (on_device) {
    // The stream goes on behind the last kernel, without waking the host first. Even a failed call
    // waits for its kernels: they use the caller's memory.
    const Fence last = compressed ? owner.compute_->run<CopyKernel>({nullptr, nullptr, 0})
                                  : owner.compute_->open_after_all(*this);
    co_await call->until(last);
    if (owner.compute_->error()) error = call->fail(owner.compute_->error());
  }
  owner.let_go(*this);
  const bool opens = !on_device || compressed || owner.compute_->error();
  // Its slot is another call's as soon as this one has ended.
  if (opens && !unsettled) co_await call->until(owner.compute_->open(*this));
  // The frame is still running; the next turn of the engine takes it apart.
  run = [](Work& self) {
    auto& ended = static_cast<StreamCall&>(self);
    ended.owner.end(ended);
  };
  owner.host_.links.engine().post(*this);
  co_return error;
}

StreamCalls::StreamCalls(const StreamHost& host, const StreamOptions& options, cuda::Device& device,
                         std::unique_ptr<cuda::CudaCompute> compute)
    : host_(host),
      device_(device),
      pinned_(device, host.links.compute()),
      compute_(std::move(compute)),
      context_(host.links.context()),
      gate_(device, compute_->workers()),
      join_(device),
      order_(host.links.state(), host.links.rank(), options.warn_s,
             [](StreamOrder::Entry& held) {
               auto& call = static_cast<StreamCall&>(held);
               call.owner.begin(call);
             }),
      unsettled_(*this),
      undecided_(*this),
      captured_pairs_(static_cast<std::size_t>(host.links.size())) {
  context_.compute = compute_.get();
  context_.host = &pinned_;
  if (context_.views && options.cuda_ipc) {
    compute_->set_peer_memory(&views_.emplace(device, ranks_nearby(context_)));
  }
  compute_->on_error(
      [](void* self, const Error& error) { static_cast<StreamCalls*>(self)->device_failed(error); },
      this);
  compute_->watch_while(&host_.runner.under_way().not_begun);
  Engine& engine = host.links.engine();
  engine.own();
  engine.add(*compute_);
  engine.add(gate_);
  engine.add(order_);
  engine.add(unsettled_);
  engine.add(undecided_);
  engine.disown();
}

Expected<std::unique_ptr<StreamCalls>> StreamCalls::create(const StreamHost& host,
                                                           const StreamOptions& options,
                                                           cuda::Device& device) {
  const unsigned workers = has_workers(options, host.links.rank(), device) ? options.blocks : 0;
  Expected<std::unique_ptr<cuda::CudaCompute>> compute =
      cuda::CudaCompute::create(device, workers, options.blocks);
  if (!compute) return compute.error();
  if (Error error = host.links.engine().join_background()) return error;
  return std::unique_ptr<StreamCalls>(new StreamCalls(host, options, device, std::move(*compute)));
}

// The communicator has left the progress thread: nothing polls the gate any more.
StreamCalls::~StreamCalls() {
  compute_->on_error(nullptr, nullptr);
  compute_->watch_while(nullptr);
  unsettled_.open_all();
  for (int i = captured_alive_.load(); i > 0; --i) host_.links.engine().background_ends();
}

// Messages that are made of what kernels should have written must not go out any more.
void StreamCalls::device_failed(const Error& error) {
  const int rank = host_.links.rank();
  host_.revocation.revoke_for_loss(
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

Error StreamCalls::enqueue(CallArgs args, void* raw_stream, HeldCompressors held, bool grouped,
                           LateChoice* choice) {
  const auto stream = static_cast<cuda::CUstream>(raw_stream);
  order_.take_turn(grouped);
  const cuda::Current current(device_);  // the caller's thread may have none
  if (Error error = check_context(args, stream)) return error;
  const auto captured = [&](const auto& kind) { return check_capture(kind, stream); };
  if (Error error = std::visit(captured, args)) return error;
  if (Error error = place(args, device_.driver(), *compute_)) return error;
  const auto placed = [&](const auto& kind) { return check_placed(kind); };
  if (Error error = std::visit(placed, args)) return error;
  host_.runner.complete(args);
  used_ = true;  // a call that is refused does not tell which device is the communicator's
  const auto* const dense = std::get_if<CollectiveArgs>(&args);
  if (dense && host_.runner.is_alone(*dense)) return copy(*dense, stream);
  if (Error error = reserve(args, stream)) return error;
  if (choice) {
    if (Error error = prepare_compressed(args, *choice, stream)) return error;
  }
  if (const auto* const compressed = std::get_if<CompressedArgs>(&args)) {
    const auto take = [&] { return take_compressors(*compressed, held); };
    if (Error error = without_throwing(take)) return error;
  }
  if (views_) views_->look_for_freed();
  StreamCall& call = take_call();
  call.messages.clear();
  call.tensors.clear();
  std::visit([&](const auto& kind) { call.keep(kind); }, args);
  call.held = std::move(held);
  call.choice = choice;
  call.on_device = uses_device(args);
  call.enters = call.on_device;
  if (views_ && dense) call.looks = {views_->look_at(dense->send), views_->look_at(dense->recv)};
  call.started = [](cuda::StreamEntry& self) {
    auto& reached = static_cast<StreamCall&>(self);
    reached.owner.reach(reached);
  };
  call.gone = [](cuda::StreamEntry& self) {
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

// A collective of one rank.
Error StreamCalls::copy(const CollectiveArgs& args, cuda::CUstream stream) const {
  if (args.send.size == 0 || args.send.data == args.recv.data) return {};
  const cuda::CUresult copied = device_.driver().memcpy_async(
      cuda::address_of(args.recv.data), cuda::address_of(args.send.data), args.send.size, stream);
  return copied == cuda::kSuccess ? Error() : device_.error("cuMemcpyAsync", copied);
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
  host_.links.engine().background_ends();
}

// Numbered only now: a call that was refused must not put this rank out of step with the others.
void StreamCalls::admit(StreamCall& call, cuda::CUstream stream) {
  if (call.captured) {
    admit_captured(call);
  } else {
    call.number = host_.runner.number(call.args);
    CallsUnderWay& calls = host_.runner.under_way();
    calls.active.fetch_add(1, std::memory_order_relaxed);
    calls.not_begun.fetch_add(1, std::memory_order_relaxed);
    host_.links.engine().background_begins();
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
    call.number = call.messages.empty() ? captured_.take() : 0;
  }
  // Replays may come at any time from now on.
  captured_alive_.fetch_add(1, std::memory_order_relaxed);
  host_.links.engine().background_begins();
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
  return owner_.host_.links.state().revoked || call.choice->ready();
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
  if (host_.links.state().revoked) return start(call);
  CompressedTensor tensor;
  if (choice.candidate()) tensor = *choice.candidate();
  if (std::shared_ptr<Compressor> compressor = choice.take()) {
    tensor.device = call.on_device ? compute_.get() : nullptr;
    call.keep(CompressedArgs{std::span(&tensor, 1), host_.links.tuning()});
    std::vector claimed{std::move(compressor)};
    call.held = HeldCompressors(std::move(claimed));
  }
  start(call);
}

void StreamCalls::start(StreamCall& call) {
  host_.revocation.revoke_if_any_died();
  CallsUnderWay& calls = host_.runner.under_way();
  if (!call.captured) calls.not_begun.fetch_sub(1, std::memory_order_relaxed);
  if (call.captured) calls.active.fetch_add(1, std::memory_order_relaxed);
  if (host_.links.state().revoked && !call.compressed) {
    let_go(call);
    cuda::StreamGate::open(call);
    end(call);
    return;
  }
  host_.runner.begin(call.running, call.number, call.args,
                     call.on_device ? context_ : host_.links.context());
  if (call.on_device) compute_->enter(call);
  call.task = call.run_and_report();
  call.task.handle().resume();
}

void StreamCalls::end(StreamCall& call) {
  call.task = Task<Error>();
  if (call.running.call) host_.runner.end(call.running, !host_.links.state().revoked);
  call.captured ? call.count_replay() : order_.remove(call);
  if (call.unsettled) {
    unsettled_.add(call);
  } else {
    release(call);
  }
  order_.begin_held();  // while this one counts: those that end at once are not the last
  host_.runner.under_way().active.fetch_sub(1, std::memory_order_release);
  host_.revocation.settling().look();
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
  Settling& settling = owner_.host_.revocation.settling();
  settling.look();  // what kept it from settling may have been a call just enqueued
  if (!settling.settled(monotonic_ns())) return false;
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
  gate_.abandon([](cuda::StreamEntry& self) {
    auto& call = static_cast<StreamCall&>(self);
    StreamCalls& owner = call.owner;
    owner.let_go(call);  // before the stream goes on
    cuda::StreamGate::open(call);
    owner.gate_.close(call);
    owner.order_.remove(call);
    owner.give_back(call);
    CallsUnderWay& calls = owner.host_.runner.under_way();
    calls.not_begun.fetch_sub(1, std::memory_order_relaxed);
    calls.active.fetch_sub(1, std::memory_order_release);
  });
}

}  // namespace pith
