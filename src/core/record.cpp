#include "core/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

namespace pith {

namespace {

bool holds(const ConstBytes& memory, const std::byte* data) {
  return data >= memory.data && data < memory.data + memory.size;
}

bool overlap(const ConstBytes& a, const ConstBytes& b) {
  return a.size != 0 && b.size != 0 && a.data < b.data + b.size && b.data < a.data + a.size;
}

bool covers(const ConstBytes& whole, const ConstBytes& part) {
  return whole.data <= part.data && whole.data + whole.size >= part.data + part.size;
}

void add_wait(Step& step, std::uint64_t id) {
  for (std::uint64_t& wait : step.waits) {
    if (wait == id) return;
    if (wait != 0) continue;
    wait = id;
    return;
  }
}

void add_line(std::string& text, const Step& step) {
  auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"id":{},"op":"{}","call":{},"begin":{},"bytes":{})", step.id,
                 name_of(step.op), step.call, step.begin_ns, step.bytes);
  if (step.ended) fmt::format_to(out, R"(,"end":{})", step.end_ns);
  if (step.peer >= 0) {
    fmt::format_to(out, R"(,"peer":{},"lane":{},"step":{})", step.peer, step.lane, step.step);
  }
  if (!step.name.empty()) fmt::format_to(out, R"(,"name":"{}")", step.name);
  if (!step.algorithm.empty()) fmt::format_to(out, R"(,"algorithm":"{}")", step.algorithm);
  if (step.place.buffer != 0) {
    fmt::format_to(out, R"(,"buffer":{},"offset":{})", step.place.buffer, step.place.offset);
  }
  if (step.failed) text += R"(,"failed":true)";
  if (step.waits[0] != 0) {
    const auto last = std::find(step.waits.begin(), step.waits.end(), std::uint64_t{0});
    fmt::format_to(out, R"(,"waits":[{}])", fmt::join(step.waits.begin(), last, ","));
  }
  text += "}\n";
}

}  // namespace

std::string_view name_of(Step::Op op) {
  constexpr std::string_view names[] = {"call", "send", "receive", "kernel"};
  return names[static_cast<int>(op)];
}

Recorder::Recorder(int rank, int ranks, std::function<std::uint64_t()> now, std::size_t most_steps,
                   std::int64_t wall_offset_ns)
    : rank_(rank),
      ranks_(ranks),
      now_(std::move(now)),
      wall_offset_ns_(wall_offset_ns),
      ring_(std::max<std::size_t>(most_steps, 1)) {
  buffers_.reserve(most_buffers);
}

void Recorder::name_buffer(ConstBytes memory, std::string_view what) {
  if (!memory.data || memory.size == 0) return;
  const auto same = [&](const Buffer& buffer) {
    return buffer.memory.data == memory.data && buffer.memory.size == memory.size;
  };
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), same);
  if (found != buffers_.end()) {
    std::rotate(found, found + 1, buffers_.end());
    return;
  }
  if (buffers_.size() == most_buffers) buffers_.erase(buffers_.begin());
  buffers_.push_back({memory, ++numbers_, what});
}

Step::Place Recorder::place_of(const std::byte* data) const {
  for (const auto& buffer : std::views::reverse(buffers_)) {
    if (!holds(buffer.memory, data)) continue;
    return {buffer.number, static_cast<std::uint64_t>(data - buffer.memory.data)};
  }
  return {};
}

// Newest writers first, up to the first one that wrote all of `read`.
void Recorder::wait_for_writers(Step& step, ConstBytes read) const {
  const std::uint64_t known = std::min<std::uint64_t>(write_count_, remembered_writes);
  for (std::uint64_t back = 1; back <= known; ++back) {
    const Write& write = writes_[(write_count_ - back) % remembered_writes];
    if (!overlap(write.memory, read)) continue;
    add_wait(step, write.id);
    if (covers(write.memory, read)) return;
  }
}

std::uint64_t Recorder::begin(Step step, ConstBytes at, std::span<const ConstBytes> reads) {
  step.id = ++count_;
  step.begin_ns = now();
  step.place = place_of(at.data);
  for (const ConstBytes& read : reads) {
    if (read.size != 0) wait_for_writers(step, read);
  }
  ring_[(step.id - 1) % ring_.size()] = step;
  return step.id;
}

Step* Recorder::find(std::uint64_t id) {
  Step& step = ring_[(id - 1) % ring_.size()];
  return step.id == id ? &step : nullptr;
}

void Recorder::end(std::uint64_t id, std::span<const ConstBytes> writes) {
  if (Step* step = find(id)) {
    step->end_ns = now();
    step->ended = true;
  }
  for (const ConstBytes& write : writes) {
    if (write.size != 0) writes_[write_count_++ % remembered_writes] = {write, id};
  }
}

std::vector<Step> Recorder::steps() const {
  std::vector<Step> all;
  for (std::uint64_t id = dropped() + 1; id <= count_; ++id) {
    all.push_back(ring_[(id - 1) % ring_.size()]);
  }
  return all;
}

std::string Recorder::text() const {
  std::string text =
      fmt::format(R"({{"pith_trace":1,"rank":{},"ranks":{},"dropped":{},"wall_offset":{}}})", rank_,
                  ranks_, dropped(), wall_offset_ns_);
  text += '\n';
  for (const Buffer& buffer : buffers_) {
    text += fmt::format(R"({{"buffer":{},"what":"{}","bytes":{}}})", buffer.number, buffer.what,
                        buffer.memory.size);
    text += '\n';
  }
  for (std::uint64_t id = dropped() + 1; id <= count_; ++id) {
    add_line(text, ring_[(id - 1) % ring_.size()]);
  }
  return text;
}

}  // namespace pith
