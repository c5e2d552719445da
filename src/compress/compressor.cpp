#include "compress/compressor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "compress/density_key.hpp"
#include "compress/host_slice.hpp"
#include "compress/memory/add_floats.hpp"
#include "compress/scheme.hpp"
#include "core/call_number.hpp"
#include "core/failure.hpp"
#include "core/kernel_args.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

void count_in(CompressorStats& stats, const PassResult& found) {
  stats.nonfinite += found.nonfinite;
  stats.squares_all += found.squares;
}

}  // namespace

Expected<std::unique_ptr<Compressor>> Compressor::create(std::string_view text) {
  const Expected<Spec> spec = Spec::parse(text);
  if (!spec) return spec.error();
  return std::make_unique<Compressor>(*spec);
}

Compressor::Compressor(const Spec& spec)
    : spec_(spec),
      spec_digest_(spec.digest()),
      notes_changes_(any_form(spec, changes_accumulators)) {
  follow_step(spec_, step);
}
Compressor::~Compressor() = default;

Error Compressor::check(std::size_t count, DType type) const {
  constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
  if (type != DType::f32 && type != DType::f16 && type != DType::bf16) {
    return {Code::invalid_argument,
            fmt::format("type is {}, expected float, half or bfloat16", name_of(type))};
  }
  if (count > most) {
    return {Code::invalid_argument, fmt::format("count is {}, expected at most {}", count, most)};
  }
  if (!shaped_ && low_rank.layout && count != low_rank.layout->count()) {
    return {Code::invalid_argument,
            fmt::format("count is {}, expected {}, the elements of its matrices", count,
                        low_rank.layout->count())};
  }
  if (!shaped_ || (count == count_ && type == type_)) return {};
  return {Code::invalid_argument,
          fmt::format("count is {} of type {}, expected {} of type {} as in the first call", count,
                      name_of(type), count_, name_of(type_))};
}

HostSlice& Compressor::make_slice(std::size_t begin, std::size_t count) {
  if (!slice_) slice_ = std::make_unique<HostSlice>(spec_, begin, count);
  return *slice_;
}

void Compressor::drop_slice(Compute& host) {
  if (!slice_) return;
  if (const float* kept = slice_->residual()) {
    clear_spent(host);
    // Memory that the device can access: the values it reads, and its pass result.
    const std::size_t bytes = device_ ? slice_->count() * sizeof(float) : 0;
    Scratch copied(reachable(host), sizeof(PassResult) + bytes);
    std::byte* const at = copied.bytes().data + sizeof(PassResult);
    const auto* more = reinterpret_cast<const std::byte*>(kept);
    if (device_) more = static_cast<const std::byte*>(std::memcpy(at, kept, bytes));
    Compute& work = vectors(host);
    const Fence added =
        work.run<AccumulateKernel>({.accumulator = accumulator() + slice_->begin(),
                                    .gradient = more,
                                    .type = DType::f32,
                                    .count = slice_->count(),
                                    .fresh = false,
                                    .result = reinterpret_cast<PassResult*>(copied.bytes().data)});
    work.retire(Lease(), std::move(copied), added);
  }
  slice_.reset();
}

void Compressor::clear_spent(Compute& host) {
  if (spent_ && count_ > 0) {
    vectors(host).run<ZeroKernel>(
        {reinterpret_cast<std::byte*>(accumulator()), count_ * sizeof(float)});
  }
  spent_ = false;  // after the kernel, which a device may refuse
}

void Compressor::forget_delivered() {
  layout.hosts = 0;     // ranks may be at other places on equal hosts
  bypass_control = {};  // other links, and ranks that may know nothing
  gossip.forget();      // other neighbours
  stats.begun = {};
  stats.timed = {};
  for (Taken& taken : taken_) taken.delivered = false;
  if (slice_) slice_->forget();
}

// What the last call took is kept until this call ends, in case other ranks did not complete it.
void Compressor::begin(std::uint32_t call, const Gradient& gradient, Compute* device) {
  queue_ = device;
  gradient_ = gradient;
  if (gradient.data == reinterpret_cast<const std::byte*>(accumulator())) gradient_.data = nullptr;
  added_.clear();
  found_.fence = Fence();  // the old fence may be another queue's
  in_call_ = true;
  is_new_ = false;
  if (taken_[0].delivered) std::swap(taken_[0], taken_[1]);
  Taken& taken = taken_[0];
  taken.call = call;
  taken.delivered = taken.whole = false;
  taken.factor = 1;
  taken.pairs.begin(spec_.values);
  taken.losses.begin(DType::f32);
  taken.left.begin(DType::f32);
  taken.factors.layout.reset();
  if (velocity) {
    velocity->begin(gradient_.data, gradient_.type, &taken.left);
    gradient_ = {reinterpret_cast<const std::byte*>(velocity->data()), DType::f32};
  }
  if (held_back) held_back->begin();
  stats = {};
  elected = all;
  histogram = nullptr;
  taken.knows_before = false;
  taken.before = *this;  // may throw
  taken.knows_before = true;
}

AccumulateKernel::Args Compressor::args_of(std::size_t begin, std::size_t count) const {
  const bool in_place = !gradient_.data;
  return {.accumulator = accumulator() + begin,
          .gradient = in_place ? nullptr : gradient_.data + begin * size_of(gradient_.type),
          .type = gradient_.type,
          .count = count,
          .fresh = spent_,
          .result = nullptr,
          .histogram = nullptr};
}

AccumulateKernel::Args Compressor::pass(std::size_t begin, std::size_t count, PassResult& result) {
  added_.add(begin, count);
  AccumulateKernel::Args args = args_of(begin, count);
  args.result = &result;
  args.histogram = histogram;
  return args;
}

Fence Compressor::start_adding(Compute& host) {
  found_.own = {};
  found_.counts = count_ > 0;
  if (!found_.counts) return {};
  PassResult* found = &found_.own;
  if (queue_) {
    found_.memory = Scratch(host, sizeof found_.own);
    found = new (found_.memory.bytes().data) PassResult();
  }
  found_.fence = vectors(host).run<AccumulateKernel>(pass(0, count_, *found));
  return found_.fence;
}

void Compressor::count_added() {
  if (!std::exchange(found_.counts, false)) return;
  count_in(stats,
           queue_ ? *reinterpret_cast<const PassResult*>(found_.memory.bytes().data) : found_.own);
  found_.memory = Scratch();
}

// A device's result is neither awaited nor counted. An earlier pass may still write there, so that
// memory is retired, too.
void Compressor::add_rest(Compute& host) {
  Scratch memory = std::exchange(found_.memory, Scratch());
  if (queue_ && !memory.bytes().data) {
    memory = Scratch(host, sizeof(PassResult));
    new (memory.bytes().data) PassResult();
  }
  Fence last = std::exchange(found_.fence, Fence());
  for (Part left = added_.first_gap(count_); left.count > 0; left = added_.first_gap(count_)) {
    PassResult own;
    PassResult& found = queue_ ? *reinterpret_cast<PassResult*>(memory.bytes().data) : own;
    last = vectors(host).run<AccumulateKernel>(pass(left.begin, left.count, found));
    if (!queue_) count_in(stats, own);
  }
  if (queue_) queue_->retire(Lease(), std::move(memory), last);
}

// For a device the pairs are first copied to memory it can access, since the caller may reuse its
// lists.
void Compressor::add_pairs(Compute& host, float* to, const SparseList& list, DType type) {
  Compute& work = vectors(host);
  if (work.kind() == MemoryKind::host || list.count == 0) {
    work.run<ReturnKernel>({to, list.indices, list.values, list.count, type});
    return;
  }
  const std::size_t index_bytes = list.count * sizeof(std::uint32_t);
  const std::size_t value_bytes = list.count * size_of(type);
  Scratch copied(reachable(host), index_bytes + value_bytes);
  std::byte* at = copied.bytes().data;
  std::memcpy(at, list.indices, index_bytes);
  std::memcpy(at + index_bytes, list.values, value_bytes);
  const Fence added = work.run<ReturnKernel>(
      {to, reinterpret_cast<const std::uint32_t*>(at), at + index_bytes, list.count, type});
  work.retire(Lease(), std::move(copied), added);
}

void Compressor::give_back(Compute& host, float* to, PairList& pairs, float factor) {
  const std::byte* values = pairs.values();
  DType type = pairs.type();
  Scratch scaled;
  if (factor != 1 && pairs.count() > 0) {
    scaled = Scratch(host, pairs.count() * sizeof(float));
    host.run<ConvertKernel>(
        {scaled.bytes().data, DType::f32, values, type, pairs.count(), 1 / factor});
    values = scaled.bytes().data;
    type = DType::f32;
  }
  add_pairs(host, to, {pairs.indices(), values, pairs.count()}, type);
  pairs.begin(pairs.type());
}

void Compressor::give_back(Compute& host, Taken& taken) {
  give_back(host, accumulator(), taken.pairs, taken.factor);
  give_back(host, accumulator(), taken.losses, taken.factor);
  if (velocity) give_back(host, velocity->data(), taken.left, taken.factor);
  if (!taken.factors.layout) return;
  add_taken(vectors(host), reachable(host), taken.factors, taken.factor, accumulator());
  taken.factors.layout.reset();
}

void Compressor::keep_losses(Compute& host, const SparseList& losses) {
  double squares = 0;
  host.run<SquaresKernel>({losses.values, losses.count, DType::f32, &squares});
  stats.squares_lost += squares;
  if (!spec_.feedback) return;             // the accumulator keeps nothing
  taken_[0].losses.reserve(losses.count);  // what is added is noted: nothing fails between
  add_pairs(host, accumulator(), losses, DType::f32);
  const SparseList kept = taken_[0].losses.append_nonzero(losses);
  auto* const values = reinterpret_cast<float*>(const_cast<std::byte*>(kept.values));
  for (std::size_t i = 0; i < kept.count; ++i) values[i] = -values[i];
}

void Compressor::return_taken(Compute& host) { give_back(host, taken_[0]); }

void Compressor::make_room_for_whole() {
  const auto make_room = [this](Accumulator& memory) {
    if (memory.count() != count_) memory = Accumulator(count_, device_);
  };
  make_room(delivered_);
  if (notes_changes_) make_room(changes_);
}

void Compressor::take_all() {
  make_room_for_whole();
  taken_[0].whole = true;
}

void Compressor::fail(Compute& host) {
  if (!std::exchange(in_call_, false)) return;
  return_taken(host);
  if (velocity) velocity->finish(vectors(host));
  add_rest(host);
  if (held_back) held_back->release(vectors(host), accumulator(), count_);
  if (slice_) slice_->restore();
  spent_ = false;
  if (taken_[0].knows_before) set_state(taken_[0].before);
  queue_ = nullptr;
}

void Compressor::end(Compute& host) {
  in_call_ = false;
  follow_step(spec_, ++step);
  stats.next_step = step;
  spent_ = false;
  Taken& taken = taken_[0];
  taken.delivered = true;
  PairList& sent = taken.pairs;
  const bool everything = taken.whole || taken.factors.layout;
  stats.selected_local = elected != all ? elected : (everything ? count_ : sent.count());
  stats.squares_sent = stats.squares_all;
  if (slice_) taken.whole ? slice_->end(stats) : slice_->restore();
  if (taken.whole) {
    deliver_whole(host);
    if (held_back) clear_spent(host);
  } else if (taken.factors.layout) {
    stats.squares_sent = taken.factors.squares;
  } else {
    host.run<SquaresKernel>({sent.values(), sent.count(), sent.type(), &stats.squares_sent});
    // Without an election nothing was delivered: some rank's gradient was not finite.
    spent_ = spec_.sparse() && !spec_.feedback;
    if (lent_) clear_spent(host);
  }
  if (held_back) held_back->release(vectors(host), accumulator(), count_);
  queue_ = nullptr;
}

// What is delivered is kept until the next call has ended. On the host nothing is allocated here,
// so that a call that has succeeded does not fail.
void Compressor::deliver_whole(Compute& host) {
  if (taken_[1].whole) taken_[1].delivered = false;
  taken_[0].rest = changes_accumulators(spec_);
  if (taken_[0].rest) {
    std::swap(changes_, delivered_);
    AccumulateKernel::Args pass = args_of(0, count_);
    pass.gradient = reinterpret_cast<const std::byte*>(delivered_.data());
    pass.type = DType::f32;
    pass.fresh = false;
    PassResult own;
    pass.result = device_ ? delivered_.result_room() : &own;
    vectors(host).run<AccumulateKernel>(pass);
    return;
  }
  spent_ = true;
  if (!lent_) return std::swap(accumulator_, delivered_);
  const auto* from = reinterpret_cast<const std::byte*>(accumulator());
  auto* to = reinterpret_cast<std::byte*>(delivered_.data());
  vectors(host).run<CopyKernel>({to, from, count_ * sizeof(float)});
  clear_spent(host);
}

void Compressor::return_after(Compute& host, std::uint32_t completed) {
  for (Taken& taken : taken_) {
    if (!taken.delivered || !is_later(taken.call, completed)) continue;
    taken.delivered = false;
    clear_spent(host);
    if (taken.whole) {
      if (taken.rest) delivered_.scale(vectors(host), -1);
      const auto* values = reinterpret_cast<const std::byte*>(delivered_.data());
      add_reachable(vectors(host), reachable(host), {accumulator(), values, count_, false});
    } else {
      give_back(host, taken);
    }
    set_state(taken.before);
  }
  if (slice_) slice_->return_after(completed);
}

void Compressor::reset() {
  slice_.reset();
  accumulator_ = Accumulator();
  delivered_ = Accumulator();
  changes_ = Accumulator();
  velocity.reset();
  held_back.reset();
  device_ = nullptr;
  binding.reset();
  shaped_ = spent_ = lent_ = false;
  is_new_ = true;
  count_ = 0;
  scale_ = 1;
  set_state({});
  stats = {};
  taken_ = {};
}

void Compressor::scale(Compute& host, float factor) {
  accumulator_.scale(vectors(host), factor);  // first: a device may refuse
  delivered_.scale(vectors(host), factor);
  if (velocity) velocity->memory().scale(vectors(host), factor);
  scale_ *= double(factor);
  SchemeState::scale(factor);
  for (Taken& taken : taken_) {
    taken.factor *= factor;
    taken.before.scale(factor);
  }
  if (slice_) slice_->scale(host, factor);
}

void Compressor::set_state(const SchemeState& state) {
  static_cast<SchemeState&>(*this) = state;
  follow(spec_, density_control);
  follow_step(spec_, step);
}

void Compressor::adopt(const SchemeState& state, double scale) {
  set_state(state);
  scale_ = scale;
  is_new_ = false;
}

std::uint64_t Compressor::digest() const {
  std::uint64_t hash = mix(mix(spec_digest_, step), std::bit_cast<std::uint64_t>(scale_));
  if (low_rank.layout) hash = mix(hash, low_rank.layout->digest());
  if (gossip.graph) hash = mix(hash, gossip.graph->digest());
  if (spec_.adapts()) {
    const auto form = static_cast<std::uint64_t>(density_control.form);
    return mix(mix(hash, std::bit_cast<std::uint64_t>(density_control.density)), form);
  }
  // Ranks of which one has lost its control would wait for different messages.
  const BypassControl& bypass = bypass_control;
  return bypass.next == 0 ? hash : mix(hash, bypass.next << 1 | (bypass.dense ? 1u : 0u));
}

}  // namespace pith
