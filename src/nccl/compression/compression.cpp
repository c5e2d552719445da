#include "nccl/compression/compression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "api/compressor_handle.hpp"
#include "comm/submit.hpp"
#include "compress/spec.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"
#include "nccl/compression/ballot.hpp"
#include "streams/stream_memory.hpp"
#include "streams/streams.hpp"

namespace pith::nccl {

namespace {

// Between two looks at calls on a stream.
void nap() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

bool is_captured(const NcclCall& call) {
  CollectiveArgs args;
  args.send = bytes_at(call.send);
  args.count = call.count;
  const auto capture = capture_of(args, call.stream);
  return capture && capture->has_value();
}

// Why the sum's memory or stream prevents compression; null: nothing does. Calls that Pith's own
// function would refuse are left to that function.
const char* objection_of_memory(const NcclCall& call) {
  if (!call.stream) return nullptr;
  if (check_streams()) return "its sums are on streams, without a CUDA driver";
  if (is_captured(call)) return "its sums are captured";
  return are_apart(call.send, call.recv) ? "its sums are of two kinds of memory" : nullptr;
}

}  // namespace

Compression::Compression(const CompressionRules& rules, bool selected, std::string who,
                         std::shared_ptr<Communicator> communicator, std::shared_ptr<HostPlan> plan)
    : rules_(rules),
      on_(selected),
      who_(std::move(who)),
      communicator_(std::move(communicator)),
      plan_(std::move(plan)) {
  if (selected) return;
  object(fmt::format("PITH_COMPRESS_COMM is {}, which does not select it", rules_.comms));
  say_not_begun();
}

void Compression::object(std::string why) {
  if (objection_.empty()) objection_ = std::move(why);
}

void Compression::say_begun() {
  if (std::exchange(has_said_, true)) return;
  // Announced here, since a client of NCCL cannot read the statistics that tell which calls went
  // dense.
  const Expected<Spec> spec = Spec::parse(rules_.spec);
  const bool may_be_dense = spec && spec->may_bypass && (spec->sparse() || spec->by_host);
  log(LogLevel::info,
      fmt::format("PITH_COMPRESS: {} is compressed from now on, by {}, in steps of {} vectors{}",
                  who_, rules_.spec, agreement_.period(),
                  may_be_dense ? "; dense where that is faster, but for bypass=never" : ""));
}

void Compression::say_not_begun() {
  if (std::exchange(has_said_, true)) return;
  log(LogLevel::info, fmt::format("PITH_COMPRESS: {} is not compressed: {}", who_, objection_));
}

void Compression::switch_off(std::string why) {
  object(std::move(why));
  say_not_begun();
}

void Compression::withdraw() {
  if (!std::exchange(on_, false)) return;
  const std::lock_guard lock(mutex_);
  object("it may not span the job");
  log(LogLevel::warn,
      fmt::format("PITH_COMPRESS: {} was taken for the whole job's and is no more, as another one "
                  "came that is not smaller; PITH_COMPRESS_COMM names those to be compressed",
                  who_));
}

// A residual that a failed call did not return is lost to the program, which may go on. The other
// residuals end with the communicator, as at the end of any training.
Compression::~Compression() {
  if (plan_) plan_->drain();
  ballots_.clear();
  if (!objection_.empty()) say_not_begun();
  drop(cycle_.waiting());
  for (const auto& vector : dropped_) lose(vector->compressor);
  const char* why = lost_vectors_ > 0 ? ", of some because their calls did not return" : "";
  for (const auto& [place, vector] : vectors_) lose(vector->compressor);
  if (lost_vectors_ == 0) return;
  if (!on_ || refused_ || broken_) why = ", as it was not compressed to its end";
  log(*why ? LogLevel::warn : LogLevel::info,
      fmt::format("PITH_COMPRESS: residuals of {} vectors were dropped{}; their norm was {:g}",
                  lost_vectors_, why, std::sqrt(lost_squares_)));
}

double Compression::residual_squares(pithCompressor_t compressor) const {
  pithCompressorStats_t stats{};
  stats.size = sizeof stats;
  if (pithCompressorGetStats(compressor, &stats) != pithSuccess) return 0;
  return stats.residual_norm * stats.residual_norm;
}

// A failed call may hold the compressor until no peer touches its memory any more.
void Compression::lose(pithCompressor_t compressor) {
  constexpr std::uint64_t patience_ns = 2'000'000'000;
  const std::uint64_t deadline = monotonic_ns() + patience_ns;
  while (compressor->state->is_claimed() && monotonic_ns() < deadline) nap();
  const double squares = residual_squares(compressor);
  lost_squares_ += squares;
  if (squares != 0) ++lost_vectors_;
  if (pithCompressorDestroy(compressor) != pithSuccess) delete compressor;
}

// Deferred: the vectors' last calls may still be on a stream.
void Compression::drop(std::span<const std::uint32_t> places) {
  for (const std::uint32_t place : places) {
    const auto found = vectors_.find(place);
    if (found == vectors_.end()) continue;
    dropped_.push_back(std::move(found->second));
    vectors_.erase(found);
  }
}

// Frees what no call uses any more.
void Compression::clear_away() {
  {
    const std::lock_guard lock(mutex_);
    while (!ballots_.empty() && ballots_.front()->decided && ballots_.front()->left == 0) {
      ballots_.pop_front();
    }
  }
  std::erase_if(dropped_, [this](const std::shared_ptr<Vector>& vector) {
    const bool used = vector.use_count() > 1 || vector->state().is_claimed();
    if (!used) lose(vector->compressor);
    return !used;
  });
}

// Gives the same answer on all ranks for the same call.
bool Compression::is_off() {
  const auto is_enough = [this] { return broken_ || decided_ballots_ + most_under_way > opened_; };
  const auto knows = [&] {
    const std::lock_guard lock(mutex_);
    if (!is_enough()) static_cast<void>(is_decided(*ballots_.back()));
    return is_enough();
  };
  if (!knows()) {
    Engine* const engine = &communicator_->engine();
    drive_engines({&engine, 1}, knows);
  }
  const std::lock_guard lock(mutex_);
  return broken_ || (refused_ && opened_ >= *refused_ + most_under_way);
}

bool Compression::covers(const NcclCall& call) {
  if (is_off()) return false;
  if (rules_.covers(call) && !objection_of_memory(call)) return true;
  const std::lock_guard lock(mutex_);
  if (call.kind == Kind::allreduce && !has_said_) object_to(call);
  return false;
}

void Compression::object_to(const NcclCall& call) {
  if (objection_.empty()) {
    object(rules_.covers(call) ? objection_of_memory(call) : rules_.objection(call));
  }
  if (++dense_sums_ == patience) say_not_begun();
}

// Null if the compressor cannot be created or does not support the call's shape.
std::shared_ptr<Compression::Vector> Compression::vector_of(std::uint32_t place, const Sum& sum) {
  const auto found = vectors_.find(place);
  if (found != vectors_.end()) return found->second;
  auto vector = std::make_shared<Vector>();
  if (pithCompressorCreate(&vector->compressor, rules_.spec.c_str()) != pithSuccess) return nullptr;
  if (vector->state().check(sum.call_.count, static_cast<DType>(sum.call_.type))) {
    pithCompressorDestroy(vector->compressor);
    return nullptr;
  }
  sum.communicator().compressors().bind(vector->compressor->state);
  vectors_.emplace(place, vector);
  return vector;
}

// False while the decided votes rule compression out: accumulators take memory, which a program
// that is never compressed should keep.
bool Compression::may_begin(std::size_t period) {
  const std::lock_guard lock(mutex_);
  return cast_ >= apart_ + 2 * period;
}

// Allocates what the vector's first sum needs, which may fail.
bool Compression::has_room(Sum& sum) {
  Vector& vector = *sum.vector_;
  if (vector.placed || !sum.call_.stream) return true;
  const Error error = pith::without_throwing(
      [&] { return sum.communicator().streams().make_room(sum.dense(), sum.call_.stream, sum); });
  vector.placed = !error;
  if (!error) return true;
  const std::lock_guard lock(mutex_);
  object(fmt::format("what it needs for that cannot be had: {}", error.message()));
  return false;
}

// A rank that cannot compress the call votes as if its pointers did not repeat. A vector is
// identified by the whole send buffer, since on some ranks parts of different vectors may look
// alike, and by the way it is summed. Its size is that of the part that Pith sums.
void Compression::cast(const NcclCall& call, Ballot& ballot) {
  Sum& sum = ballot.sums.emplace_back(*this, ballot, call);
  if (!on_) return ballot.votes.push_back(0);
  const PointerCycle::Seen seen = cycle_.next({call.send, call.count, call.type, sum.by_plan()});
  ++cast_;
  const bool candidate = seen.place && may_begin(seen.period);
  if (candidate) sum.become(vector_of(*seen.place, sum));
  if (sum.vector_ && !has_room(sum)) {
    sum.become(nullptr);
    drop(std::span(&*seen.place, 1));
  }
  const bool unable = candidate && !sum.vector_;
  ballot.votes.push_back(unable ? 1 : 1 + static_cast<std::int64_t>(seen.period));
}

Expected<Compression::Ballot*> Compression::open(std::span<const NcclCall* const> calls,
                                                 bool here) {
  clear_away();
  auto ballot = std::make_unique<Ballot>();
  for (const NcclCall* call : calls) cast(*call, *ballot);
  drop(cycle_.take_dropped());
  ballot->left = calls.size();
  for (std::size_t i = 0; i < calls.size(); ++i) ballot->votes.push_back(-ballot->votes[i]);
  CollectiveArgs args;
  args.send = args.recv = bytes_at(ballot->votes.data());
  args.count = ballot->votes.size();
  args.type = DType::i64;
  args.op = Op::min;
  Group group;
  group.add(communicator_, args, nullptr);
  if (here) {
    ballot->error = group.run();
    ballot->here = true;
  } else {
    Expected<Request> vote = group.run_in_background();
    if (!vote) return vote.error();
    ballot->running = Background(std::move(*vote));
  }
  ++opened_;
  const std::lock_guard lock(mutex_);
  return ballots_.emplace_back(std::move(ballot)).get();
}

// Decides ballots in order, since the agreement depends on all earlier calls.
bool Compression::is_decided(const Ballot& ballot) {
  for (const std::unique_ptr<Ballot>& one : ballots_) {
    if (ballot.decided || (!one->decided && !one->has_ended())) break;
    if (!one->decided) decide(*one);
  }
  return ballot.decided;
}

void Compression::decide(Ballot& ballot) {
  ballot.decided = true;
  const std::size_t number = decided_ballots_++;
  if (!ballot.here) ballot.error = ballot.running.error();
  if (ballot.error) {
    broken_ = true;
    return switch_off("its ranks could not agree");
  }
  std::uint64_t agreement = 0;  // of the first compressed sum
  std::size_t first = 0;
  for (std::size_t i = 0; i < ballot.sums.size(); ++i) {
    const std::int64_t least = ballot.least(i);
    if (least == 0 && !refused_) {
      refused_ = number;
      switch_off("another rank does not select it");
    }
    const bool alike = least > 0 && least == ballot.greatest(i);
    const std::size_t period = alike ? static_cast<std::size_t>(least - 1) : 0;
    const std::uint64_t found = agreement_.next(period);
    ++decided_;
    if (period == 0) apart_ = decided_;
    if (found == 0) continue;
    if (agreement == 0) {
      agreement = found;
      first = i;
    }
    // A vector that occurs twice in a group has one residual, which the first sum uses.
    if (found != agreement || i - first >= period) continue;
    Sum& sum = ballot.sums[i];
    sum.agreement_ = found;
    sum.vector_->users.push_back(&sum);
  }
  if (has_said_) return;
  if (agreement != 0) return say_begun();
  object("its sums do not come from the same addresses in every step");
  dense_sums_ += static_cast<int>(ballot.sums.size());
  if (dense_sums_ >= patience) say_not_begun();
}

// Calls get a vector's compressor in call order, which is the same on all ranks, whatever the order
// of the streams. A new agreement resets the scheme's state, which may differ between ranks.
bool Compression::has_compressor(Sum& sum) {
  if (!is_decided(sum.ballot_)) return false;
  if (sum.holds_ || sum.agreement_ == 0) return true;
  Vector& vector = *sum.vector_;
  if (vector.users.front() != &sum || !vector.state().claim()) return false;
  vector.users.pop_front();
  sum.holds_ = true;
  if (std::exchange(vector.agreement, sum.agreement_) == sum.agreement_) return true;
  vector.state().adopt(SchemeState(), 1);
  vector.state().forget_delivered();
  return true;
}

bool Compression::is_ready(Ballot& ballot) {
  const std::lock_guard lock(mutex_);
  bool ready = is_decided(ballot);
  for (Sum& sum : ballot.sums) ready = ready && has_compressor(sum);
  return ready;
}

std::size_t Compression::size_of(const Ballot& ballot) { return ballot.sums.size(); }

Error Compression::error_of(const Ballot& ballot) {
  const std::lock_guard lock(mutex_);
  return ballot.error;
}

void Compression::add(Ballot& ballot, std::size_t call, Group& group) {
  Sum& sum = ballot.sums[call];
  if (sum.take()) {
    group.add(communicator_, sum.vector_->compressor->state, sum.tensor_, nullptr);
  } else {
    group.add(communicator_, sum.dense(), nullptr);
  }
}

Error Compression::enqueue(Ballot& ballot, std::size_t call) {
  Sum& sum = ballot.sums[call];
  if (sum.by_plan()) {
    if (Error error = plan_->reduce_scatter(*sum.whole_)) return error;
  }
  const bool grouped = std::exchange(ballot.enqueued[sum.by_plan() ? 1 : 0], true);
  Error error = sum.communicator().streams().enqueue(sum.dense(), sum.call_.stream, sum, grouped);
  if (error) return error;
  if (sum.vector_) sum.vector_->placed = true;
  return sum.by_plan() ? plan_->all_gather(*sum.whole_) : Error();
}

}  // namespace pith::nccl
