#include "control/call_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/call_number.hpp"
#include "core/pair_message.hpp"

namespace pith {

namespace {

std::uint32_t pack(const CollectiveArgs& args) {
  return static_cast<std::uint32_t>(args.collective) | static_cast<std::uint32_t>(args.type) << 8 |
         static_cast<std::uint32_t>(args.op) << 16 |
         static_cast<std::uint32_t>(args.factor.used) << 24 |
         static_cast<std::uint32_t>(args.wire.is_used()) << 25 |
         static_cast<std::uint32_t>(args.uneven.used()) << 26;
}

bool is_coded(std::uint32_t what) { return (what >> 25 & 1) != 0; }
bool is_uneven(std::uint32_t what) { return (what >> 26 & 1) != 0; }

// Ranks of an alltoall with uneven blocks agree on none.
bool has_count(const CollectiveArgs& args) {
  return args.collective != Collective::alltoall || !args.uneven.used();
}

// Of uneven blocks: all together. As read from an entry they have only that.
std::uint64_t count_of(const CollectiveArgs& args) {
  const Range* const blocks = args.uneven.common();
  return blocks && has_count(args) ? total_of(blocks, args.uneven.ranks) : args.count;
}

void unpack(std::uint32_t what, CollectiveArgs& args) {
  args.collective = static_cast<Collective>(what & 0xff);
  args.type = static_cast<DType>(what >> 8 & 0xff);
  args.op = static_cast<Op>(what >> 16 & 0xff);
  args.factor.used = (what >> 24 & 1) != 0;
}

std::string operation_of(const CollectiveArgs& args) {
  return fmt::format("{}{}", args.factor.used ? "premultiplied " : "", name_of(args.op));
}

void add_facts(std::vector<CallFact>& facts, const CollectiveArgs& args) {
  if (args.collective == Collective::barrier || args.collective == Collective::split) return;
  if (has_count(args)) facts.push_back({"count", fmt::format("{}", args.count)});
  facts.push_back({"type", std::string(name_of(args.type))});
  if (reduces(args.collective)) facts.push_back({"op", operation_of(args)});
  if (has_root(args.collective)) facts.push_back({"root", fmt::format("{}", args.root)});
}

// Splits "topk:density=0.01,values=f32" into its keys.
void add_keys(std::vector<CallFact>& facts, std::string_view spec) {
  const std::size_t colon = spec.find(':');
  std::string_view left = colon == spec.npos ? "" : spec.substr(colon + 1);
  while (!left.empty()) {
    const std::string_view key = left.substr(0, left.find(','));
    const std::size_t value = key.find('=') + 1;
    facts.push_back({std::string(key.substr(0, value)), std::string(key.substr(value))});
    left.remove_prefix(std::min(left.size(), key.size() + 1));
  }
}

using SpecWords = std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Spec::Packed>>;

void store(const Spec& spec, SpecWords& words) {
  const Spec::Packed packed = spec.pack();
  for (std::size_t i = 0; i < packed.size(); ++i) {
    words[i].store(packed[i], std::memory_order_release);
  }
}

Spec load(const SpecWords& words) {
  Spec::Packed packed{};
  for (std::size_t i = 0; i < packed.size(); ++i) {
    packed[i] = words[i].load(std::memory_order_acquire);
  }
  return Spec::unpack(packed);
}

void add_compressor(std::vector<CallFact>& facts, const Spec& spec) {
  facts.push_back({"compressor", std::string(spec.stated().name)});
  add_keys(facts, spec.text());
}

}  // namespace

std::string describe(const CollectiveArgs& args) {
  if (args.collective == Collective::barrier || args.collective == Collective::split) {
    return std::string(name_of(args.collective));
  }
  const std::string count = has_count(args) ? fmt::format("{} ", count_of(args)) : "";
  std::string text = fmt::format("{}{} of {}{}", args.wire.is_used() ? "compressed " : "",
                                 name_of(args), count, name_of(args.type));
  if (reduces(args.collective)) text += fmt::format(", {}", operation_of(args));
  if (has_root(args.collective)) text += fmt::format(", root {}", args.root);
  if (args.wire.is_used()) text += fmt::format(", {}", args.wire.name());
  return text;
}

std::string describe(const Message& message) {
  return fmt::format("{} of {} {} {} rank {}", message.sends ? "send" : "recv", message.count,
                     name_of(message.type), message.sends ? "to" : "from", message.peer);
}

CallRecorder::Entry& CallRecorder::open_entry(std::uint32_t number, std::uint64_t digest) {
  if (is_ahead(number)) newest_.store(number, std::memory_order_release);
  Entry& e = entry(number);
  e.number.store(0, std::memory_order_relaxed);
  // A reader that sees any of the new words re-reads the number and finds 0.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  e.state.store(running, std::memory_order_release);
  e.digest.store(digest, std::memory_order_release);
  e.begun_ms.store(now_ms_.load(std::memory_order_relaxed), std::memory_order_release);
  return e;
}

void CallRecorder::begin(std::uint32_t number, std::uint64_t digest, const CollectiveArgs& args) {
  Entry& e = open_entry(number, digest);
  e.count.store(count_of(args), std::memory_order_release);
  e.what.store(pack(args), std::memory_order_release);
  e.root.store(args.root, std::memory_order_release);
  if (args.uneven.used()) e.blocks.store(digest_of_blocks(args), std::memory_order_release);
  e.tensors.store(0, std::memory_order_release);
  if (args.wire.is_used()) store(args.wire.spec(), e.spec);
  e.number.store(number, std::memory_order_release);
}

// Recorded by its first tensor; only the count is that of all tensors.
void CallRecorder::begin(std::uint32_t number, std::uint64_t digest,
                         std::span<const CompressedTensor> tensors) {
  Entry& e = open_entry(number, digest);
  std::uint64_t count = 0;
  for (const CompressedTensor& tensor : tensors) count += tensor.count;
  CollectiveArgs args;
  args.type = tensors[0].type;
  args.op = tensors[0].average ? Op::avg : Op::sum;
  const Compressor& compressor = *tensors[0].compressor;
  e.count.store(count, std::memory_order_release);
  e.what.store(pack(args), std::memory_order_release);
  e.root.store(0, std::memory_order_release);
  e.tensors.store(static_cast<std::uint32_t>(tensors.size()), std::memory_order_release);
  e.step.store(compressor.step, std::memory_order_release);
  e.scale.store(std::bit_cast<std::uint64_t>(compressor.scale()), std::memory_order_release);
  const auto& layout = compressor.low_rank.layout;
  e.matrices.store(layout ? layout->digest() : 0, std::memory_order_release);
  store(compressor.spec(), e.spec);
  e.number.store(number, std::memory_order_release);
}

// The log line has the whole spec; the note has the scheme, and the keys as facts for comparison.
void CallRecorder::read_compressed(const Entry& e, const CollectiveArgs& args, Read& read) {
  const Spec spec = load(e.spec);
  const auto scale = std::bit_cast<double>(e.scale.load(std::memory_order_acquire));
  const std::uint32_t tensors = e.tensors.load(std::memory_order_acquire);
  const std::uint64_t step = e.step.load(std::memory_order_acquire);
  std::string before = fmt::format("compressed {}", describe(args));
  if (tensors > 1) before += fmt::format(", {} tensors", tensors);
  std::string behind = fmt::format(", step {}", step);
  if (scale != 1) behind += fmt::format(", scale {}", scale);
  read.line = fmt::format("{}, {}{}", before, spec.text(), behind);
  read.note.text = fmt::format("{}, {}{}", before, spec.stated().name, behind);
  std::vector<CallFact>& facts = read.note.facts;
  facts.push_back({"tensors", fmt::format("{}", tensors)});
  add_compressor(facts, spec);
  facts.push_back({"step", fmt::format("{}", step)});
  facts.push_back({"scale", fmt::format("{}", scale)});
  if (layout_rank_of(spec) == 0) return;
  const std::uint64_t matrices = e.matrices.load(std::memory_order_acquire);
  facts.push_back({"matrices", matrices ? fmt::format("hash {:x}", matrices) : "not stated"});
}

void CallRecorder::add_blocks(const Entry& e, const CollectiveArgs& args,
                              std::vector<CallFact>& facts) {
  if (!has_count(args)) return;
  const std::uint64_t blocks = e.blocks.load(std::memory_order_acquire);
  facts.push_back({"blocks", fmt::format("hash {:x}", blocks)});
}

// As for compressed calls, the keys are in the line and among the facts.
void CallRecorder::read_coded(const Entry& e, CollectiveArgs args, Read& read) {
  const Spec spec = load(e.spec);
  const Expected<WireCoding> wire = WireCoding::of(spec);
  if (!wire) return;  // the entry is being overwritten
  args.wire = *wire;
  read.note.text = describe(args);
  read.line = read.note.text + spec.text().substr(spec.scheme->name.size());
  add_compressor(read.note.facts, spec);
}

void CallRecorder::end(std::uint32_t number, bool well) {
  if (well && number <= call_numbers) completed_.add(number);
  Entry& e = entry(number);
  if (e.number.load(std::memory_order_relaxed) != number) return;  // overwritten by a later call
  e.ended_ms.store(now_ms_.load(std::memory_order_relaxed), std::memory_order_release);
  e.state.store(well ? ended_well : failed, std::memory_order_release);
}

CallRecorder::Batch CallRecorder::begin(std::span<const Message> messages) {
  const auto last = messages.last(std::min(messages.size(), kept));
  const Batch batch = {messages_begun_ + 1, last.size()};
  const std::uint64_t others = messages_running_.load(std::memory_order_relaxed);
  messages_running_.store(others + batch.count, std::memory_order_relaxed);
  for (const Message& message : last) write(++messages_begun_, batch.first, message);
  return batch;
}

void CallRecorder::write(std::uint64_t serial, std::uint64_t batch, const Message& message) {
  MessageEntry& e = messages_[serial % kept];
  e.serial.store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // as in open_entry
  e.state.store(running, std::memory_order_release);
  e.batch.store(batch, std::memory_order_release);
  e.number.store(message.number, std::memory_order_release);
  e.count.store(message.count, std::memory_order_release);
  e.peer.store(message.peer, std::memory_order_release);
  e.type.store(message.type, std::memory_order_release);
  e.sends.store(message.sends, std::memory_order_release);
  e.begun_ms.store(now_ms_.load(std::memory_order_relaxed), std::memory_order_release);
  e.serial.store(serial, std::memory_order_release);
}

void CallRecorder::end(const Batch& batch, bool well) {
  const std::uint64_t all = messages_running_.load(std::memory_order_relaxed);
  messages_running_.store(all - batch.count, std::memory_order_relaxed);
  for (std::uint64_t serial = batch.first; serial < batch.first + batch.count; ++serial) {
    MessageEntry& e = messages_[serial % kept];
    if (e.serial.load(std::memory_order_relaxed) != serial) continue;  // overwritten by a later one
    e.ended_ms.store(now_ms_.load(std::memory_order_relaxed), std::memory_order_release);
    e.state.store(well ? ended_well : failed, std::memory_order_release);
  }
}

CallRecorder::AwaitedList::AwaitedList(const CallRecorder& recorder)
    : call_(recorder.oldest_running()) {
  if (call_ == 0) messages_ = recorder.oldest_messages();
}

void CallRecorder::AwaitedList::add(const Awaited& one) {
  const bool nearer = is_nearer(one);
  if (nearer) waits_for_ = one.peer;
  if (count_ < some_.size()) {
    some_[count_++] = one;
  } else if (nearer) {
    some_.back() = one;
  }
}

// Whether the oldest call waits for it and nothing was added before; or whether it is a message of
// the oldest group that comes before all those added so far.
bool CallRecorder::AwaitedList::is_nearer(const Awaited& one) {
  if (call_ != 0) return waits_for_ < 0 && one.tag.lane != pair_lane && one.tag.call == call_;
  const auto found = std::find_if(messages_.begin(), messages_.end(),
                                  [&](const Message& message) { return is_of(one, message); });
  if (found == messages_.end()) return false;
  messages_.erase(found, messages_.end());
  return true;
}

bool CallRecorder::is_of(const Awaited& one, const Message& message) {
  const bool with_message = one.tag.step != receiving_step;
  return one.tag.lane == pair_lane && one.tag.call == message.number && one.peer == message.peer &&
         one.sends == (message.sends == with_message);
}

void CallRecorder::tell_awaited(std::span<const Awaited> awaited) {
  const std::lock_guard lock(awaited_mutex_);
  awaited_.count = std::min(awaited.size(), most_awaited);
  awaited_.known = true;
  std::copy_n(awaited.begin(), awaited_.count, awaited_.some.begin());
}

std::optional<CallRecorder::Read> CallRecorder::read(const Entry& e) {
  const std::uint32_t number = e.number.load(std::memory_order_acquire);
  if (number == 0) return std::nullopt;
  Read read{};
  CollectiveArgs args;
  read.times.state = static_cast<State>(e.state.load(std::memory_order_acquire));
  read.note.number = number;
  read.note.digest = e.digest.load(std::memory_order_acquire);
  args.count = e.count.load(std::memory_order_acquire);
  const std::uint32_t what = e.what.load(std::memory_order_acquire);
  unpack(what, args);
  args.root = e.root.load(std::memory_order_acquire);
  read.times.begun_ms = e.begun_ms.load(std::memory_order_acquire);
  read.times.ended_ms = e.ended_ms.load(std::memory_order_acquire);
  const bool compressed = e.tensors.load(std::memory_order_acquire) > 0;
  const bool coded = !compressed && is_coded(what);
  args.uneven.ranks = is_uneven(what) ? 1 : 0;  // the blocks themselves are not recorded
  const std::string name(name_of(args));
  read.note.facts.push_back({"collective", compressed || coded ? "compressed " + name : name});
  add_facts(read.note.facts, args);
  if (args.uneven.used()) add_blocks(e, args, read.note.facts);
  if (compressed) {
    read_compressed(e, args, read);
  } else if (coded) {
    read_coded(e, args, read);
  } else {
    read.line = read.note.text = describe(args);
  }
  if (e.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  return read;
}

bool CallRecorder::is_ahead(std::uint32_t number) const {
  return number != 0 && !is_captured(number) &&
         is_later(number, newest_.load(std::memory_order_acquire));
}

std::optional<CallNote> CallRecorder::find(std::uint32_t number) const {
  if (number == 0) return std::nullopt;
  std::optional<Read> found = read(entries_[number % kept]);
  if (!found || found->note.number != number) return std::nullopt;
  return std::move(found->note);
}

std::uint32_t CallRecorder::oldest_running() const {
  std::uint32_t first = 0;
  for (const Entry& e : entries_) {
    const std::uint32_t number = e.number.load(std::memory_order_acquire);
    if (number == 0 || e.state.load(std::memory_order_acquire) != running) continue;
    if (first == 0 || is_later(first, number)) first = number;
  }
  return first;
}

// The oldest running group, in its order. Messages of a group are marked as ended together, so some
// may have completed already.
std::vector<Message> CallRecorder::oldest_messages() const {
  std::vector<Message> oldest;
  std::uint64_t batch = 0;
  for (const ReadMessage& one : messages()) {
    if (one.times.state != running) continue;
    if (!oldest.empty() && one.batch != batch) break;
    batch = one.batch;
    oldest.push_back(one.message);
  }
  return oldest;
}

std::optional<CallNote> CallRecorder::oldest_unfinished() const {
  // Formats only one entry: texts are slow, and this is called often.
  std::optional<CallNote> oldest = find(oldest_running());
  if (oldest || messages_running_.load(std::memory_order_relaxed) == 0) return oldest;
  oldest = CallNote{0, 0, "send or recv"};  // the text where the group's entries have been
                                            // overwritten
  const std::vector<Message> group = oldest_messages();
  if (group.empty()) return oldest;
  const AwaitedNow awaited = awaited_now();
  const auto first = std::find_if(group.begin(), group.end(), [&](const Message& message) {
    return std::ranges::any_of(std::span(awaited.some).first(awaited.count),
                               [&](const Awaited& one) { return is_of(one, message); });
  });
  oldest->text = describe(first == group.end() ? group.front() : *first);
  return oldest;
}

CallRecorder::AwaitedNow CallRecorder::awaited_now() const {
  const std::lock_guard lock(awaited_mutex_);
  return awaited_;
}

std::optional<CallRecorder::ReadMessage> CallRecorder::read(const MessageEntry& e) {
  ReadMessage read{};
  read.serial = e.serial.load(std::memory_order_acquire);
  if (read.serial == 0) return std::nullopt;
  read.times.state = static_cast<State>(e.state.load(std::memory_order_acquire));
  read.batch = e.batch.load(std::memory_order_acquire);
  read.message.number = e.number.load(std::memory_order_acquire);
  read.message.count = e.count.load(std::memory_order_acquire);
  read.message.peer = e.peer.load(std::memory_order_acquire);
  read.message.type = e.type.load(std::memory_order_acquire);
  read.message.sends = e.sends.load(std::memory_order_acquire);
  read.times.begun_ms = e.begun_ms.load(std::memory_order_acquire);
  read.times.ended_ms = e.ended_ms.load(std::memory_order_acquire);
  if (e.serial.load(std::memory_order_relaxed) != read.serial) return std::nullopt;
  return read;
}

// Sorted by serial.
std::vector<CallRecorder::ReadMessage> CallRecorder::messages() const {
  std::vector<ReadMessage> all;
  for (const MessageEntry& e : messages_) {
    if (const std::optional<ReadMessage> found = read(e)) all.push_back(*found);
  }
  std::sort(all.begin(), all.end(),
            [](const ReadMessage& a, const ReadMessage& b) { return a.serial < b.serial; });
  return all;
}

std::string CallRecorder::when(const Times& times) const {
  const std::uint32_t now = now_ms_.load(std::memory_order_relaxed);
  const auto seconds = [](std::uint32_t from, std::uint32_t to) { return (to - from) / 1e3; };
  if (times.state == running) {
    return fmt::format(", running for {:.1f} s", seconds(times.begun_ms, now));
  }
  return fmt::format(", {} {:.1f} s ago, after {:.1f} s", times.state == failed ? "failed" : "done",
                     seconds(times.ended_ms, now), seconds(times.begun_ms, times.ended_ms));
}

// Step numbers are the algorithm's, the same on all ranks.
std::string CallRecorder::steps(const Read& call, const AwaitedNow& awaited, bool sends) {
  std::string text;
  for (std::size_t i = 0; i < awaited.count; ++i) {
    const auto& [peer, tag, sent] = awaited.some[i];
    if (tag.lane == pair_lane || tag.call != call.note.number || sent != sends) continue;
    text += fmt::format("{}step {} {} rank {}", text.empty() ? "" : " and ", tag.step,
                        sends ? "to" : "of", peer);
    if (tag.lane != 0) text += fmt::format(" in lane {}", tag.lane);
  }
  return text;
}

std::string CallRecorder::how_far(const Read& call, const AwaitedNow& awaited) {
  const std::string comes = steps(call, awaited, false);
  const std::string goes = steps(call, awaited, true);
  if (!comes.empty() && !goes.empty()) {
    return fmt::format(", waits for {}, and to send {}", comes, goes);
  }
  if (!comes.empty()) return fmt::format(", waits for {}", comes);
  if (!goes.empty()) return fmt::format(", waits to send {}", goes);
  const bool all_known = awaited.known && awaited.count < most_awaited;
  return all_known ? ", waits for no message" : "";
}

std::string CallRecorder::how_far(const Message& message, const AwaitedNow& awaited,
                                  std::size_t head_bytes, std::size_t chunk_bytes) {
  for (std::size_t i = 0; i < awaited.count; ++i) {
    if (!is_of(awaited.some[i], message)) continue;
    const std::size_t moved = bytes_before(awaited.some[i].tag.step, head_bytes, chunk_bytes);
    return fmt::format(", {} of {} bytes have {}", moved, message.count * size_of(message.type),
                       message.sends ? "gone" : "come");
  }
  return {};
}

template <class Entries>
void CallRecorder::drop_ended(Entries& entries, std::size_t most) {
  const auto has_ended = [](const auto& one) { return one.times.state != running; };
  auto ended = static_cast<std::size_t>(std::ranges::count_if(entries, has_ended));
  std::erase_if(entries, [&](const auto& one) { return has_ended(one) && ended-- > most; });
}

std::vector<std::string> CallRecorder::lines(std::size_t head_bytes, std::size_t chunk_bytes,
                                             std::size_t most_ended) const {
  const AwaitedNow awaited = awaited_now();
  std::vector<Read> all;
  for (const Entry& e : entries_) {
    if (std::optional<Read> found = read(e)) all.push_back(std::move(*found));
  }
  std::sort(all.begin(), all.end(),
            [](const Read& a, const Read& b) { return a.note.number < b.note.number; });
  drop_ended(all, most_ended);
  std::vector<ReadMessage> pairs = messages();
  drop_ended(pairs, most_ended);
  std::vector<std::string> lines;
  for (const Read& one : all) {
    const bool runs = one.times.state == running;
    lines.push_back(fmt::format("call {}: {}{}{}", one.note.number, one.line, when(one.times),
                                runs ? how_far(one, awaited) : ""));
  }
  for (const ReadMessage& one : pairs) {
    const bool runs = one.times.state == running;
    lines.push_back(
        fmt::format("{}{}{}", describe(one.message), when(one.times),
                    runs ? how_far(one.message, awaited, head_bytes, chunk_bytes) : ""));
  }
  return lines;
}

}  // namespace pith
