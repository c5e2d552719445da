#include "comm/communicator.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "collectives/premultiply.hpp"
#include "collectives/typed_span.hpp"
#include "comm/process_end.hpp"
#include "comm/stream_calls.hpp"
#include "comm/stream_memory.hpp"
#include "core/clock.hpp"
#include "core/float_mode.hpp"
#include "core/log.hpp"
#include "core/mix.hpp"
#include "core/pause.hpp"
#include "core/run_together.hpp"

namespace pith {

namespace {

// Background calls of one communicator that run at the same time; later ones wait their turn, in
// the same order on every rank.
constexpr int most_running = 4;

// A dense collective of nothing needs nobody, but for a barrier.
bool moves_nothing(const CollectiveArgs& args) {
  return args.count == 0 && args.collective != Collective::barrier;
}

Task<Error> do_nothing(Call&) { co_return Error(); }

std::optional<bool> workers_asked_for(const Settings& settings) {
  if (settings.cuda_steps == "launch" || settings.cuda_launches_block) return false;
  if (settings.cuda_steps == "worker" || settings.one_cuda_connection) return true;
  return std::nullopt;
}

}  // namespace

// What ranks must agree on; travels in every message.
std::uint64_t Communicator::digest_of(const CollectiveArgs& args) {
  std::uint64_t hash = mix(0x70697468, static_cast<std::uint64_t>(args.collective));
  hash = mix(hash, args.count);
  hash = mix(hash, (static_cast<std::uint64_t>(args.type) << 8) | static_cast<unsigned>(args.op) |
                       (args.factor.used ? 0x80u : 0u));
  hash = mix(hash, static_cast<std::uint64_t>(args.root));
  return args.tensors.empty() ? hash : mix(hash, digest_of_tensors(args.tensors));
}

void CallGroup::keep(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
}

void CallGroup::finish_one(const Error& error) {
  if (error) keep(error);
  remaining_.fetch_sub(1, std::memory_order_release);
}

FrameArena& BackgroundCall::frame_arena() const { return communicator_.engine_->arena(); }

Task<Error> BackgroundCall::run_and_report() {
  Task<Error> collective = communicator_.start(*call_, args_);
  Error error = out_of_memory();
  if (collective) error = co_await std::move(collective);
  error = Communicator::told_to_all(*call_, args_, error);
  post_reaping();  // the frame is still running; the next turn of the engine takes it apart
  co_return error;
}

void BackgroundCall::post_reaping() {
  run = [](Work& self) {
    auto& call = static_cast<BackgroundCall&>(self);
    call.communicator_.reap(call);
  };
  communicator_.engine_->post(*this);
}

Communicator::Communicator(const Settings& settings, std::shared_ptr<ControlNode> control,
                           CommKey key, std::vector<int> members, int rank)
    : engine_(std::make_unique<Engine>(static_cast<int>(members.size()))),
      model_(settings, static_cast<int>(members.size())),
      routes_(members.size()),
      pairs_(members.size()),
      windows_(members.size()),
      control_(std::move(control)),
      key_(key),
      rank_(rank),
      members_(std::move(members)),
      cancellation_(std::make_shared<Cancellation>(rank)) {
  look_for_device_memory();  // calls without a stream ask what their memory is
  heartbeat_s_ = settings.heartbeat;
  timeout_s_ = settings.timeout;
  cuda_ipc_ = settings.cuda_ipc;
  cuda_by_workers_ = workers_asked_for(settings);
  cuda_blocks_ = settings.cuda_blocks;
  trace_prefix_ = settings.trace;
  context_.scheduler = &engine_->scheduler();
  context_.arena = &engine_->arena();
  context_.mailbox = &engine_->mailbox();
  context_.compute = &compute_;
  context_.host = &compute_;
  context_.chooser = &model_;
  context_.comm = &state_;
  context_.routes = routes_;
  context_.rank = rank;
  context_.size = static_cast<int>(members_.size());
  context_.revoke_context = this;
  context_.revoke = [](void* self, const Error& error) {
    static_cast<Communicator*>(self)->revoke_for_loss(error);
  };
  recorder_.tell_time(monotonic_ns());
  engine_->on_no_memory = [this] { revoke(out_of_memory()); };
  engine_->mailbox().on_dispute = [this](int peer, std::uint32_t call) { dispute(peer, call); };
}

Communicator::~Communicator() {
  ProcessEnd::instance().remove(*this);
  drain();
  part(Error(Code::remote, "the communicator was destroyed"), monotonic_ns() + goodbye_ns);
  for (const auto& [call, error] : unsettled_) finish_now(*call, error);
}

const Algorithm* Communicator::algorithm_of(std::string_view collective, std::size_t count,
                                            DType type) const {
  const auto of_it = [&](const Algorithm& one) { return name_of(one.collective) == collective; };
  const auto found = std::ranges::find_if(algorithms(), of_it);
  if (found == algorithms().end()) return nullptr;
  return &model_.algorithm(found->collective, count * size_of(type));
}

void Communicator::set_order(RankOrder order) {
  order_ = std::move(order);
  routes_ = order_.arrange(std::span<const Route>(routes_));
  context_.routes = routes_;
  context_.rank = order_.place_of(rank_);
  context_.order = &order_;
}

void Communicator::set_hosts(std::span<const std::size_t> names) {
  const std::vector<std::size_t> placed = order_.arrange(names);
  hosts_ = Hosts(std::span<const std::size_t>(placed));
  context_.hosts = &hosts_;
  const bool apart = std::any_of(names.begin(), names.end(),
                                 [&](std::size_t name) { return name != names.front(); });
  model_.set_multi_host(apart);
}

void Communicator::complete(CollectiveArgs& args) const {
  const std::size_t bytes = args.count * size_of(args.type);
  const Extent extent = extent_of(args.collective, size());
  args.send.size = bytes * extent.send;
  args.recv.size = bytes * extent.recv;
  args.tuning = model_.tuning();
}

Task<Error> Communicator::start(Call& call, const CollectiveArgs& args) {
  try {
    return task_of(call, args);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

Task<Error> Communicator::task_of(Call& call, const CollectiveArgs& args) {
  if (args.collective == Collective::point_to_point) {
    return exchange_messages(call, args.messages, windows_, args.tuning.chunk_bytes);
  }
  if (!args.tensors.empty()) {
    return allreduce_compressed(call, args.tensors, args.tuning);
  }
  if (moves_nothing(args)) return do_nothing(call);
  CollectiveArgs placed = args;
  placed.root = order_.place_of(args.root);
  scale_average(placed, size());
  if (placed.factor.used) return run_premultiplied(call, placed, choose(args));
  return choose(args).run(call, placed);
}

// Memory that runs out here is news to the other ranks, which wait for us. A compressed call has
// told them, for it has gradients to keep first.
Error Communicator::told_to_all(const Call& call, const CollectiveArgs& args, const Error& error) {
  return error && args.tensors.empty() ? call.fail(error) : error;
}

// Messages of pairs do not count among the calls: other ranks may know nothing of them.
std::uint32_t Communicator::number(const CollectiveArgs& args) {
  if (args.collective != Collective::point_to_point) return take_number();
  pairs_.take(args.messages);
  return 0;
}

Communicator::Recorded Communicator::call_begins(std::uint32_t number, std::uint64_t digest,
                                                 const CollectiveArgs& args) {
  const bool paired = args.collective == Collective::point_to_point;
  Recorded recorded;
  if (paired) {
    recorded = recorder_.begin(args.messages);
  } else {
    recorder_.begin(number, digest, args);
  }
  if (!trace_) return recorded;
  if (!args.tensors.empty()) {
    trace_->begin(number, args, args.tensors[0].compressor->spec().scheme->name);
  } else {
    trace_->begin(number, args, paired ? std::string_view() : choose(args).name);
  }
  return recorded;
}

void Communicator::call_ends(std::uint32_t number, const Recorded& recorded, bool well) {
  if (recorded.count != 0) {
    recorder_.end(recorded, well);
  } else {
    recorder_.end(number, well);
  }
  if (trace_) trace_->end(number, well);
}

bool Communicator::is_alone(const CollectiveArgs& args) const {
  return size() == 1 && args.collective != Collective::point_to_point && !args.factor.used &&
         args.tensors.empty();
}

// Every collective of one rank is a copy, but for one with a factor.
Error Communicator::run_alone(const CollectiveArgs& args) {
  if (args.recv.data != args.send.data && args.send.size > 0) {
    std::memmove(args.recv.data, args.send.data, args.send.size);
  }
  return error();
}

// One thread at a time issues calls, so the counters that only it writes need no locked operation;
// drain() may come from another one, and lets go of the communicator after the last store here.
Error Communicator::run(CollectiveArgs& args) {
  complete(args);
  if (is_alone(args)) return run_alone(args);
  const std::uint32_t call_number = number(args);
  const FloatMode mode;
  blocking_.store(true, std::memory_order_relaxed);
  engine_->own();
  Error result = refuses_calls();
  if (result) absorb_gradients(compute_, call_number, args.tensors);
  if (!result) result = run_here(call_number, args);
  if (result && state_.revoked) result = state_.revoked;
  settle();
  const bool waits = result && peers_may_touch();
  engine_->disown();
  if (waits) wait_until_settled();
  blocking_.store(false, std::memory_order_release);
  return result;
}

// An output that has no room for the result is this rank's error alone: the call has ended well.
bool Communicator::is_over(const Error& error) const { return !error || !state_.revoked; }

// Precondition: the token is held.
Error Communicator::run_here(std::uint32_t call_number, const CollectiveArgs& args) {
  inside_ = true;
  const std::uint64_t digest = digest_of(args);
  const Recorded recorded = call_begins(call_number, digest, args);
  Call call(context_, call_number, digest);
  Error result = out_of_memory();
  Task<Error> task = start(call, args);
  if (task) {
    task.handle().resume();
    engine_->drive_until([&] { return task.done(); });
    result = task.take();
  }
  result = told_to_all(call, args, result);
  call_ends(call_number, recorded, is_over(result));
  inside_ = false;
  const bool alone = call_number != 0 && active_.load(std::memory_order_relaxed) == 0;
  if (result || !alone) return result;
  result = check_left_over(call_number);
  if (result) take_back(compute_, call_number, args.tensors);
  return result;
}

void Communicator::issue(BackgroundCall& call, bool driven) {
  complete(call.args_);
  if (is_alone(call.args_)) return call.group_.finish_one(run_alone(call.args_));
  call.number_ = number(call.args_);
  call.driven_ = driven;
  active_.fetch_add(1, std::memory_order_relaxed);
  call.run = [](Work& self) {
    auto& posted = static_cast<BackgroundCall&>(self);
    posted.communicator_.enqueue(posted);
  };
  if (!driven) engine_->background_begins();
  engine_->post(call);
}

Error Communicator::enqueue_on_stream(const CollectiveArgs& args, void* stream,
                                      HeldCompressors held, bool grouped) {
  // A compressed call runs all the same: its gradients go to the accumulators, in stream order.
  const bool revoked = is_revoked_.load(std::memory_order_acquire);
  if (revoked && args.tensors.empty()) return error();
  if (Error error = open_streams(args, stream)) return error;
  const Error refused = streams_->enqueue(args, stream, std::move(held), grouped);
  return refused || !revoked ? refused : error();
}

Error Communicator::enqueue_on_stream(const CollectiveArgs& args, void* stream, LateChoice& choice,
                                      bool grouped) {
  if (is_revoked()) return error();
  if (Error error = open_streams(args, stream)) return error;
  return streams_->enqueue(args, stream, {}, grouped, &choice);
}

Error Communicator::make_room_on_stream(const CollectiveArgs& args, void* stream,
                                        const LateChoice& choice) {
  if (is_revoked()) return error();
  if (Error error = open_streams(args, stream)) return error;
  return streams_->make_room(args, stream, choice);
}

// Where there are none to be had, or no more calls, it is the calls that say so.
Error Communicator::join_streams(std::span<void* const> streams) {
  if (streams.size() < 2 || is_revoked()) return {};
  const auto named = std::find_if(streams.begin(), streams.end(), [](void* stream) {
    return !cuda::is_default(static_cast<cuda::CUstream>(stream));
  });
  void* const first = named == streams.end() ? streams.front() : *named;
  if (open_streams(CollectiveArgs(), first)) return {};
  return streams_->join(streams);
}

Error Communicator::open_streams(const CollectiveArgs& args, void* stream) {
  if (streams_ && streams_->used()) return {};
  // Nothing tells of a device but the thread's context, which may be another communicator's.
  const bool tells = names_memory(args) || !cuda::is_default(static_cast<cuda::CUstream>(stream));
  if (streams_ && !tells) return {};
  const Expected<cuda::Device*> device = device_of(args, stream);
  if (!device) return device.error();
  return open_streams_of(**device);
}

// What was prepared for another device is kept: the engine polls it.
Error Communicator::open_streams_of(cuda::Device& device) {
  if (streams_ && streams_->serves(device)) return {};
  Expected<std::unique_ptr<StreamCalls>> made = StreamCalls::create(*this, device);
  if (!made) return made.error();
  engine_->own();
  streams_.swap(*made);
  if (*made) unused_streams_.push_back(std::move(*made));
  engine_->disown();
  return {};
}

void Communicator::prepare_streams(void* context) {
  if (!context) return;
  const Error error = without_throwing([&]() -> Error {
    const Expected<cuda::Device*> device =
        cuda::Device::of_context(static_cast<cuda::CUcontext>(context));
    if (!device) return device.error();
    if (Error failed = open_streams_of(**device)) return failed;
    return streams_->prepare();
  });
  if (!error) return;
  log(LogLevel::info, fmt::format("rank {}: nothing is prepared for calls on CUDA streams: {}",
                                  rank(), error.message()));
}

void* Communicator::stream_context() const { return streams_ ? streams_->context() : nullptr; }

double Communicator::warn_s() const {
  constexpr double longest_s = 10;
  return timeout_s_ > 0 ? std::min(longest_s, timeout_s_ / 2) : longest_s;
}

// Messages of pairs start at once: what they wait for may be behind any number of calls.
void Communicator::enqueue(BackgroundCall& call) {
  if (call.is_paired()) return begin(call);
  try {
    queued_.push_back(&call);
  } catch (const std::bad_alloc&) {
    ++running_;
    return end_without_memory(call);
  }
  start_queued();
}

// It has not begun; its gradients are kept as those of a refused call.
void Communicator::end_without_memory(BackgroundCall& call) {
  revoke(out_of_memory());
  absorb_gradients(compute_, call.number_, call.args_.tensors);
  call.post_reaping();
}

void Communicator::start_queued() {
  while (running_ < most_running && !queued_.empty()) {
    BackgroundCall& call = *queued_.front();
    queued_.erase(queued_.begin());
    ++running_;
    begin(call);
  }
}

void Communicator::begin(BackgroundCall& call) {
  revoke_if_any_died();
  const std::uint64_t digest = digest_of(call.args_);
  call.recorded_ = call_begins(call.number_, digest, call.args_);
  call.call_.emplace(context_, call.number_, digest);
  try {
    call.task_ = call.run_and_report();
  } catch (const std::bad_alloc&) {
    return end_without_memory(call);
  }
  call.task_.handle().resume();
}

void Communicator::reap(BackgroundCall& call) {
  Error error = call.task_ ? call.task_.take() : out_of_memory();
  if (error && state_.revoked) error = state_.revoked;
  call_ends(call.number_, call.recorded_, is_over(error));
  call.task_ = Task<Error>();
  call.call_.reset();
  if (!call.is_paired()) --running_;
  const bool driven = call.driven_;
  start_queued();
  active_.fetch_sub(1, std::memory_order_release);  // drain() promises that results are there
  settle();
  if (!driven) engine_->background_ends();
  finish(call, error);  // the owner may free the call from here on
}

void Communicator::drain() {
  const FloatMode mode;
  unsigned idle = 0;
  while (runs()) {
    if (!engine_->try_own()) {
      sched_yield();
      continue;
    }
    if (streams_ && state_.revoked) streams_->abandon();
    idle = engine_->progress() ? 0 : idle + 1;
    engine_->disown();
    if (idle) pause(idle);  // without the token: the call's own thread may be waiting for it
  }
  if (streams_ && streams_->unsettled()) wait_until_settled();
}

void drive_engines(std::span<Engine* const> engines, const std::function<bool()>& done) {
  const FloatMode mode;
  if (engines.size() == 1) {
    engines[0]->own();
    engines[0]->drive_until(done);
    engines[0]->disown();
    return;
  }
  for (unsigned idle = 0; !done();) {
    bool moved = false;
    for (Engine* engine : engines) {
      if (!engine->try_own()) continue;
      moved |= engine->progress();
      engine->disown();
    }
    idle = moved ? 0 : idle + 1;
    if (idle) pause(idle);
  }
}

}  // namespace pith
