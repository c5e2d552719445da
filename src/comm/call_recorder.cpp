#include "comm/call_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace pith {

namespace {

std::uint32_t pack(const CollectiveArgs& args) {
  return static_cast<std::uint32_t>(args.collective) | static_cast<std::uint32_t>(args.type) << 8 |
         static_cast<std::uint32_t>(args.op) << 16;
}

void unpack(std::uint32_t what, CollectiveArgs& args) {
  args.collective = static_cast<Collective>(what & 0xff);
  args.type = static_cast<DType>(what >> 8 & 0xff);
  args.op = static_cast<Op>(what >> 16 & 0xff);
}

}  // namespace

std::string describe(const CollectiveArgs& args) {
  if (args.collective == Collective::barrier || args.collective == Collective::split) {
    return std::string(name_of(args.collective));
  }
  std::string text =
      fmt::format("{} of {} {}", name_of(args.collective), args.count, name_of(args.type));
  if (reduces(args.collective)) text += fmt::format(", {}", name_of(args.op));
  if (has_root(args.collective)) text += fmt::format(", root {}", args.root);
  return text;
}

void CallRecorder::begin(std::uint32_t number, std::uint64_t digest, const CollectiveArgs& args) {
  if (number == 0) {
    pairs_running_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Entry& e = entry(number);
  e.number.store(0, std::memory_order_relaxed);
  // Readers that see new words behind an old number look at the number again, and see 0.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  e.state.store(running, std::memory_order_release);
  e.digest.store(digest, std::memory_order_release);
  e.count.store(args.count, std::memory_order_release);
  e.what.store(pack(args), std::memory_order_release);
  e.root.store(args.root, std::memory_order_release);
  e.number.store(number, std::memory_order_release);
}

void CallRecorder::end(std::uint32_t number, bool well) {
  if (number == 0) {
    pairs_running_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  Entry& e = entry(number);
  if (e.number.load(std::memory_order_relaxed) != number) return;
  e.state.store(well ? ended_well : failed, std::memory_order_release);
  std::uint32_t last = completed_.load(std::memory_order_relaxed);
  while (true) {
    const Entry& next = entry(last + 1);
    if (next.number.load(std::memory_order_relaxed) != last + 1) break;
    if (next.state.load(std::memory_order_relaxed) != ended_well) break;
    ++last;
  }
  completed_.store(last, std::memory_order_release);
}

std::optional<CallRecorder::Read> CallRecorder::read(const Entry& e) {
  const std::uint32_t number = e.number.load(std::memory_order_acquire);
  if (number == 0) return std::nullopt;
  Read read{};
  CollectiveArgs args;
  read.state = static_cast<State>(e.state.load(std::memory_order_acquire));
  read.note.number = number;
  read.note.digest = e.digest.load(std::memory_order_acquire);
  args.count = e.count.load(std::memory_order_acquire);
  unpack(e.what.load(std::memory_order_acquire), args);
  args.root = e.root.load(std::memory_order_acquire);
  if (e.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  read.note.text = describe(args);
  return read;
}

std::optional<CallNote> CallRecorder::find(std::uint32_t number) const {
  if (number == 0) return std::nullopt;
  std::optional<Read> found = read(entries_[number % kept]);
  if (!found || found->note.number != number) return std::nullopt;
  return std::move(found->note);
}

std::optional<CallNote> CallRecorder::oldest_unfinished() const {
  std::optional<CallNote> oldest;
  for (const Entry& e : entries_) {
    std::optional<Read> found = read(e);
    if (!found || found->state != running) continue;
    if (!oldest || found->note.number < oldest->number) oldest = std::move(found->note);
  }
  if (!oldest && pairs_running_.load(std::memory_order_relaxed) > 0) {
    oldest = CallNote{0, 0, "send or recv"};
  }
  return oldest;
}

std::vector<std::string> CallRecorder::lines() const {
  constexpr const char* words[] = {"running", "done", "failed"};
  std::vector<Read> all;
  for (const Entry& e : entries_) {
    if (std::optional<Read> found = read(e)) all.push_back(std::move(*found));
  }
  std::sort(all.begin(), all.end(),
            [](const Read& a, const Read& b) { return a.note.number < b.note.number; });
  std::vector<std::string> lines;
  for (const Read& one : all) {
    lines.push_back(
        fmt::format("call {}: {}, {}", one.note.number, one.note.text, words[one.state]));
  }
  return lines;
}

}  // namespace pith
