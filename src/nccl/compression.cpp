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

Compression::Compression(const CompressionRules& rules, bool selected, std::string who)
    : rules_(rules), on_(selected), who_(std::move(who)) {
  if (selected) return;
  object(fmt::format("PITH_COMPRESS_COMM is {}, which does not select it", rules_.comms));
  say_not_begun();
}

void Compression::object(std::string why) {
  if (objection_.empty()) objection_ = std::move(why);
}

void Compression::say_begun(std::size_t vectors) {
  if (std::exchange(has_said_, true)) return;
  log(LogLevel::info, fmt::format("PITH_COMPRESS: {} is compressed from now on, by {}, in steps of "
                                  "{} vectors",
                                  who_, rules_.spec, vectors));
}

void Compression::say_not_begun() {
  if (std::exchange(has_said_, true)) return;
  log(LogLevel::info, fmt::format("PITH_COMPRESS: {} is not compressed: {}", who_, objection_));
}

void Compression::give_up() {
  decided_off_ = true;
  object("its ranks could not agree");
  say_not_begun();
}

void Compression::withdraw() {
  if (!std::exchange(on_, false)) return;
  object("it may not span the job");
  log(LogLevel::warn,
      fmt::format("PITH_COMPRESS: {} was taken for the whole job's and is no more, as another one "
                  "came that is not smaller; PITH_COMPRESS_COMM names those to be compressed",
                  who_));
}

// What a vector had left when its calls ceased to return is lost to the program, which may go on;
// what the others have left goes with the communicator at the end of any training.
Compression::~Compression() {
  if (!objection_.empty()) say_not_begun();
  drop(cycle_.waiting());
  const bool is_loss = lost_vectors_ > 0;
  for (const auto& [place, compressor] : compressors_) lose(compressor);
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

// Its last call may still be on a stream, which then keeps the state as long as it needs it.
void Compression::lose(pithCompressor_t compressor) {
  constexpr std::uint64_t patience_ns = 2'000'000'000;
  const std::uint64_t deadline = monotonic_ns() + patience_ns;
  while (compressor->state->is_claimed() && monotonic_ns() < deadline) nap();
  const double squares = residual_squares(compressor);
  lost_squares_ += squares;
  if (squares != 0) ++lost_vectors_;
  if (pithCompressorDestroy(compressor) != pithSuccess) delete compressor;
}

void Compression::drop(std::span<const std::uint32_t> places) {
  for (const std::uint32_t place : places) {
    const auto found = compressors_.find(place);
    if (found == compressors_.end()) continue;
    lose(found->second);
    compressors_.erase(found);
  }
}

bool Compression::covers(const NcclCall& call) {
  if (decided_off_) return false;
  if (rules_.covers(call) && !objection_of_memory(call)) return true;
  if (call.kind == Kind::allreduce && !has_said_) object_to(call);
  return false;
}

void Compression::object_to(const NcclCall& call) {
  if (objection_.empty()) {
    object(rules_.covers(call) ? objection_of_memory(call) : rules_.objection(call));
  }
  if (++dense_sums_ == patience) say_not_begun();
}

void Compression::Ballot::close() {
  const std::size_t n = votes.size();
  for (std::size_t i = 0; i < n; ++i) votes.push_back(-votes[i]);
}

void Compression::vote(const NcclCall& call, Ballot& ballot) {
  PointerCycle::Seen seen{0, std::nullopt};
  if (on_) seen = cycle_.next({call.send, call.count, call.type});
  ballot.votes.push_back(seen.vote);
  ballot.places.push_back(seen.place);
}

void Compression::settle(Ballot& ballot) {
  auto& places = ballot.places;
  for (std::size_t i = 0; i < places.size(); ++i) {
    // A vector that comes twice at one time has one residual: it goes with the first.
    const auto here = places.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(places.begin(), here, *here) != here) here->reset();
    const std::int64_t least = ballot.least(i);
    const std::int64_t greatest = ballot.greatest(i);
    if (least == greatest && least != 0) continue;
    if (least == 0) {
      object("another rank does not select it");
      give_up();
    }
    cycle_.disagree(PointerCycle::without_return(least) == PointerCycle::without_return(greatest));
    for (std::size_t j = i; j < places.size(); ++j) places[j].reset();
    break;
  }
  drop(cycle_.take_dropped());
  if (has_said_) return;
  for (const std::optional<std::uint32_t>& place : places) {
    if (place) return say_begun(cycle_.period());
  }
  object("its sums do not come from the same addresses in every step");
  dense_sums_ += static_cast<int>(places.size());
  if (dense_sums_ >= patience) say_not_begun();
}

Expected<pithCompressor_t> Compression::compressor_of(std::uint32_t place) {
  const auto found = compressors_.find(place);
  if (found != compressors_.end()) return found->second;
  pithCompressor_t made = nullptr;
  if (const pithResult_t result = pithCompressorCreate(&made, rules_.spec.c_str())) {
    return Error(static_cast<Code>(result), pithGetLastError(nullptr));
  }
  compressors_.emplace(place, made);
  return made;
}

Error Compression::add(const NcclCall& call, std::optional<std::uint32_t> place,
                       const std::shared_ptr<Communicator>& communicator, api::Group& group) {
  constexpr const char* function = "ncclAllReduce";
  const auto type = static_cast<DType>(call.type);
  if (!place) {
    CollectiveArgs args;
    args.send = api::bytes_at(call.send);
    args.recv = api::bytes_at(call.recv);
    args.count = call.count;
    args.type = type;
    args.op = static_cast<Op>(call.op);
    group.add(communicator, args, call.stream);
    return {};
  }
  const Expected<pithCompressor_t> compressor = compressor_of(*place);
  if (!compressor) return compressor.error();
  const std::shared_ptr<Compressor>& state = (*compressor)->state;
  if (Error error = state->check(call.count, type)) return error;
  while (call.stream && state->is_claimed()) {
    if (Error error = communicator->error()) return error;
    nap();
  }
  api::Claim claim(function, *state);
  if (claim.error()) return claim.error();
  CompressedTensor tensor;
  tensor.compressor = state.get();
  tensor.send = static_cast<const std::byte*>(call.send);
  tensor.recv = static_cast<std::byte*>(call.recv);
  tensor.count = call.count;
  tensor.type = type;
  tensor.average = call.op == ncclAvg;
  group.add(communicator, state, tensor, call.stream);
  claim.keep();
  return {};
}

}  // namespace pith::nccl
