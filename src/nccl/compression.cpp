#include "nccl/compression.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "api/compressor_handle.hpp"
#include "api/submit.hpp"
#include "comm/stream_memory.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"

namespace pith::nccl {

namespace {

struct TypeName {
  std::string_view name;
  ncclDataType_t type;
};
constexpr std::array type_names = {TypeName{"f32", ncclFloat32}, TypeName{"f16", ncclFloat16},
                                   TypeName{"bf16", ncclBfloat16}};

Error bad(const std::string& text, const std::string& what) {
  return {Code::invalid_argument, fmt::format("PITH_COMPRESS is \"{}\": {}", text, what)};
}

// "1MiB", "64K", "1048576".
Expected<std::size_t> read_bytes(std::string_view text) {
  std::size_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  constexpr std::array<std::string_view, 4> units = {"", "K", "M", "G"};
  for (std::size_t i = 0; i < units.size() && status == std::errc(); ++i) {
    const unsigned shift = 10 * static_cast<unsigned>(i);
    const bool named = unit == units[i] || (i > 0 && unit == fmt::format("{}iB", units[i]));
    if (named && value <= (std::size_t{1} << 62) >> shift) return value << shift;
  }
  return Error(Code::invalid_argument,
               fmt::format("min is \"{}\", expected bytes, as 65536, 64K or 1MiB", text));
}

Expected<unsigned> read_types(std::string_view text) {
  unsigned types = 0;
  while (true) {
    const std::string_view name = text.substr(0, text.find('|'));
    const auto* found = std::find_if(type_names.begin(), type_names.end(),
                                     [&](const TypeName& one) { return one.name == name; });
    if (found == type_names.end()) {
      return Error(Code::invalid_argument,
                   fmt::format("types has \"{}\", expected some of f32|f16|bf16", name));
    }
    types |= 1u << found->type;
    if (name.size() == text.size()) return types;
    text.remove_prefix(name.size() + 1);
  }
}

// While a stream goes on.
void nap() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

bool is_captured(const NcclCall& call) {
  CollectiveArgs args;
  args.send = api::bytes_at(call.send);
  args.count = call.count;
  const auto capture = capture_of(args, call.stream);
  return capture && capture->has_value();
}

// Why a sum cannot be compressed where its memory lies, or its stream is; null: it can. What Pith's
// own call refuses is left to that.
const char* objection_of_memory(const NcclCall& call) {
  if (!call.stream) return nullptr;
  if (check_streams()) return "its sums are on streams, without a CUDA driver";
  if (is_captured(call)) return "its sums are captured";
  return are_apart(call.send, call.recv) ? "its sums are of two kinds of memory" : nullptr;
}

// Takes min= and types= out of the spec; what is left is the compressor's.
Error take_own_keys(std::string_view text, CompressionRules& rules) {
  std::size_t begin = text.find(':');
  rules.spec = text.substr(0, begin);
  char separator = ':';
  while (begin != std::string_view::npos) {
    const std::size_t end = text.find(',', begin + 1);
    const std::string_view part =
        text.substr(begin + 1, end == std::string_view::npos ? end : end - begin - 1);
    begin = end;
    if (part.starts_with("min=")) {
      const Expected<std::size_t> bytes = read_bytes(part.substr(4));
      if (!bytes) return bytes.error();
      rules.bytes_min = *bytes;
    } else if (part.starts_with("types=")) {
      const Expected<unsigned> types = read_types(part.substr(6));
      if (!types) return types.error();
      rules.types = *types;
    } else {
      rules.spec += separator;
      rules.spec += part;
      separator = ',';
    }
  }
  return {};
}

}  // namespace

Expected<CompressionRules> CompressionRules::parse(const std::string& text,
                                                   const std::string& comms) {
  CompressionRules rules;
  rules.comms = comms;
  for (const TypeName& one : type_names) rules.types |= 1u << one.type;
  if (Error error = take_own_keys(text, rules)) return bad(text, error.message());
  pithCompressor_t probe = nullptr;
  if (pithCompressorCreate(&probe, rules.spec.c_str()) != pithSuccess) {
    return bad(text, fmt::format("{}; also min= (bytes) and types=f32|f16|bf16 are known",
                                 pithGetLastError(nullptr)));
  }
  pithCompressorDestroy(probe);
  return rules;
}

std::string CompressionRules::describe() const {
  std::string names;
  for (const TypeName& one : type_names) {
    if ((types >> one.type & 1) != 0)
      names += fmt::format("{}{}", names.empty() ? "" : "|", one.name);
  }
  return fmt::format(
      "PITH_COMPRESS: {} for sums and averages of {} from {} bytes on, in communicators {}", spec,
      names, bytes_min, comms);
}

// Everything that the ranks have in common.
bool CompressionRules::covers(const NcclCall& call) const {
  if (call.kind != Kind::allreduce) return false;
  if (call.op != ncclSum && call.op != ncclAvg) return false;
  if (call.type < 0 || call.type >= ncclNumTypes || (types >> call.type & 1) == 0) return false;
  const std::size_t size = call.type == ncclFloat32 ? 4 : 2;
  return call.count >= (bytes_min + size - 1) / size && call.count > 0;
}

std::string CompressionRules::objection(const NcclCall& call) const {
  if (call.op != ncclSum && call.op != ncclAvg) return "it makes no sums or averages";
  if (call.type < 0 || call.type >= ncclNumTypes || (types >> call.type & 1) == 0) {
    return fmt::format("its sums are of type {}, which types= does not name",
                       static_cast<int>(call.type));
  }
  const std::size_t size = call.type == ncclFloat32 ? 4 : 2;
  return fmt::format("its sums are short: {} bytes, min= is {}", call.count * size, bytes_min);
}

bool CompressionRules::selects(const std::string& name, bool spans_job) const {
  return comms == "world" ? spans_job : fnmatch(comms.c_str(), name.c_str(), 0) == 0;
}

struct Compression::Vector {
  pithCompressor_t compressor = nullptr;
  std::deque<const Sum*> users;  // compressed, in order; those that have not had it yet
  std::uint64_t agreement = 0;   // of its last call
  bool placed = false;           // its memory lies where the vector does

  Compressor& state() const { return *compressor->state; }
};

class Compression::Sum final : public LateChoice {
 public:
  Sum(Compression& owner, Ballot& ballot, const NcclCall& call)
      : owner_(owner), ballot_(ballot), call_(call) {}
  ~Sum() {
    if (holds_) vector_->state().release();
  }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  const CompressedTensor* candidate() const override { return vector_ ? &tensor_ : nullptr; }
  bool is_fresh() const override { return !vector_->placed; }
  bool ready() override;
  std::shared_ptr<Compressor> take() override;

 private:
  friend class Compression;
  void become(std::shared_ptr<Vector> vector);
  CollectiveArgs dense() const;

  Compression& owner_;
  Ballot& ballot_;
  const NcclCall call_;
  std::shared_ptr<Vector> vector_;  // null: not known
  CompressedTensor tensor_;
  std::uint64_t agreement_ = 0;  // 0: dense
  bool holds_ = false;           // the vector's compressor, until it is taken
};

struct Compression::Ballot {
  bool has_ended() const { return here || running.done(); }
  // One minimum over all ranks tells the greatest, too.
  std::int64_t least(std::size_t call) const { return votes[call]; }
  std::int64_t greatest(std::size_t call) const { return -votes[sums.size() + call]; }

  std::vector<std::int64_t> votes;
  std::deque<Sum> sums;
  std::size_t left = 0;  // sums that may still be asked for
  bool here = false;     // the vote has ended, in the call that opened it
  bool decided = false;
  Error error;
  api::Background running;  // the vote; waits for its end before the votes go
};

void Compression::Sum::become(std::shared_ptr<Vector> vector) {
  vector_ = std::move(vector);
  if (!vector_) return;
  tensor_.compressor = &vector_->state();
  tensor_.send = static_cast<const std::byte*>(call_.send);
  tensor_.recv = static_cast<std::byte*>(call_.recv);
  tensor_.count = call_.count;
  tensor_.type = static_cast<DType>(call_.type);
  tensor_.average = call_.op == ncclAvg;
}

CollectiveArgs Compression::Sum::dense() const {
  CollectiveArgs args;
  args.send = api::bytes_at(call_.send);
  args.recv = api::bytes_at(call_.recv);
  args.count = call_.count;
  args.type = static_cast<DType>(call_.type);
  args.op = static_cast<Op>(call_.op);
  return args;
}

bool Compression::Sum::ready() {
  const std::lock_guard lock(owner_.mutex_);
  return owner_.has_compressor(*this);
}

// The ballot may go when its last sum is taken.
std::shared_ptr<Compressor> Compression::Sum::take() {
  const std::lock_guard lock(owner_.mutex_);
  std::shared_ptr<Compressor> taken;
  if (std::exchange(holds_, false)) taken = vector_->compressor->state;
  --ballot_.left;
  return taken;
}

Compression::Compression(const CompressionRules& rules, bool selected, std::string who,
                         std::shared_ptr<Communicator> communicator)
    : rules_(rules), on_(selected), who_(std::move(who)), communicator_(std::move(communicator)) {
  if (selected) return;
  object(fmt::format("PITH_COMPRESS_COMM is {}, which does not select it", rules_.comms));
  say_not_begun();
}

void Compression::object(std::string why) {
  if (objection_.empty()) objection_ = std::move(why);
}

void Compression::say_begun() {
  if (std::exchange(has_said_, true)) return;
  log(LogLevel::info, fmt::format("PITH_COMPRESS: {} is compressed from now on, by {}, in steps of "
                                  "{} vectors",
                                  who_, rules_.spec, agreement_.period()));
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

// What a vector had left when its calls ceased to return is lost to the program, which may go on;
// what the others have left goes with the communicator at the end of any training.
Compression::~Compression() {
  ballots_.clear();
  if (!objection_.empty()) say_not_begun();
  drop(cycle_.waiting());
  for (const auto& vector : dropped_) lose(vector->compressor);
  const bool is_loss = lost_vectors_ > 0;
  for (const auto& [place, vector] : vectors_) lose(vector->compressor);
  if (lost_vectors_ == 0) return;
  log(is_loss ? LogLevel::warn : LogLevel::info,
      fmt::format("PITH_COMPRESS: residuals of {} vectors were dropped{}; their norm was {:g}",
                  lost_vectors_, is_loss ? ", of some because their calls did not return" : "",
                  std::sqrt(lost_squares_)));
}

double Compression::residual_squares(pithCompressor_t compressor) const {
  pithCompressorStats_t stats{};
  stats.size = sizeof stats;
  if (pithCompressorGetStats(compressor, &stats) != pithSuccess) return 0;
  return stats.residual_norm * stats.residual_norm;
}

// A call that has failed may hold it until no peer touches its memory any more.
void Compression::lose(pithCompressor_t compressor) {
  constexpr std::uint64_t patience_ns = 2'000'000'000;
  const std::uint64_t deadline = monotonic_ns() + patience_ns;
  while (compressor->state->is_claimed() && monotonic_ns() < deadline) nap();
  const double squares = residual_squares(compressor);
  lost_squares_ += squares;
  if (squares != 0) ++lost_vectors_;
  if (pithCompressorDestroy(compressor) != pithSuccess) delete compressor;
}

// Its last calls may still be on a stream.
void Compression::drop(std::span<const std::uint32_t> places) {
  for (const std::uint32_t place : places) {
    const auto found = vectors_.find(place);
    if (found == vectors_.end()) continue;
    dropped_.push_back(std::move(found->second));
    vectors_.erase(found);
  }
}

// What no call uses any more.
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

// The same on all ranks, with each call.
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

// Null where it cannot be made, or the call's shape is none for a compressor.
std::shared_ptr<Compression::Vector> Compression::vector_of(std::uint32_t place,
                                                            const NcclCall& call) {
  const auto found = vectors_.find(place);
  if (found != vectors_.end()) return found->second;
  auto vector = std::make_shared<Vector>();
  if (pithCompressorCreate(&vector->compressor, rules_.spec.c_str()) != pithSuccess) return nullptr;
  if (vector->state().check(call.count, static_cast<DType>(call.type))) {
    pithCompressorDestroy(vector->compressor);
    return nullptr;
  }
  api::bind_to_communicator(vector->compressor->state, communicator_);
  vectors_.emplace(place, vector);
  return vector;
}

// Not, where so much is known: accumulators take memory, which a program that is never compressed
// should keep.
bool Compression::may_begin(std::size_t period) {
  const std::lock_guard lock(mutex_);
  return cast_ >= apart_ + 2 * period;
}

// A rank that cannot compress the call votes as if its pointers did not repeat.
void Compression::cast(const NcclCall& call, Ballot& ballot) {
  Sum& sum = ballot.sums.emplace_back(*this, ballot, call);
  if (!on_) return ballot.votes.push_back(0);
  const PointerCycle::Seen seen = cycle_.next({call.send, call.count, call.type});
  ++cast_;
  const bool candidate = seen.place && may_begin(seen.period);
  if (candidate) sum.become(vector_of(*seen.place, call));
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
  args.send = args.recv = api::bytes_at(ballot->votes.data());
  args.count = ballot->votes.size();
  args.type = DType::i64;
  args.op = Op::min;
  api::Group group;
  group.add(communicator_, args, nullptr);
  if (here) {
    ballot->error = group.run();
    ballot->here = true;
  } else {
    Expected<api::Request> vote = group.run_in_background();
    if (!vote) return vote.error();
    ballot->running = api::Background(std::move(*vote));
  }
  ++opened_;
  const std::lock_guard lock(mutex_);
  return ballots_.emplace_back(std::move(ballot)).get();
}

// In the order of the calls, for the agreement is made of all of them.
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
  std::uint64_t agreement = 0;  // of its first compressed sum
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
    // A vector that comes twice at one time has one residual: it goes with the first.
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

// Calls get a vector's compressor in their order, which is that of all ranks, whatever the streams.
// What a scheme remembers of an earlier agreement may be another thing on other ranks.
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

void Compression::add(Ballot& ballot, std::size_t call, api::Group& group) {
  Sum& sum = ballot.sums[call];
  if (sum.take()) {
    group.add(communicator_, sum.vector_->compressor->state, sum.tensor_, nullptr);
  } else {
    group.add(communicator_, sum.dense(), nullptr);
  }
}

Error Compression::enqueue(Ballot& ballot, std::size_t call, bool grouped) {
  Sum& sum = ballot.sums[call];
  Error error = communicator_->enqueue_on_stream(sum.dense(), sum.call_.stream, sum, grouped);
  if (!error && sum.vector_) sum.vector_->placed = true;
  return error;
}

}  // namespace pith::nccl
