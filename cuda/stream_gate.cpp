#include "cuda/stream_gate.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "core/clock.hpp"

namespace pith::cuda {

namespace {

// For this long after a replay another one is expected.
constexpr std::uint64_t lively_ns = 50'000'000;

}  // namespace

Expected<CaptureInfo> capture_of(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = kCaptureNone;
  CaptureInfo info;
  CUresult result = kErrorNotSupported;
  if (driver.capture_info_v3) {
    result =
        driver.capture_info_v3(stream, &status, &info.id, &info.graph, nullptr, nullptr, nullptr);
  } else if (driver.capture_info_v2) {
    result = driver.capture_info_v2(stream, &status, &info.id, &info.graph, nullptr, nullptr);
  }
  if (result == kErrorCaptureImplicit) {
    return Error(Code::cuda,
                 fmt::format("the legacy default stream takes no calls while a stream that waits "
                             "for it is being captured: {}",
                             driver.describe(result)));
  }
  if (result != kSuccess) {
    return Error(Code::cuda, fmt::format("cuStreamGetCaptureInfo: {}", driver.describe(result)));
  }
  if (status == kCaptureInvalidated) {
    return Error(Code::invalid_usage, "the capture of this stream is already invalid");
  }
  info.active = status == kCaptureActive;
  return info;
}

// Slots of live lines are never reused: the application's graphs still write to them.
StreamGate::~StreamGate() {
  for (StreamEntry* entry : waiting_) device_.give_slot({entry->slot, entry->value});
  for (const Line& line : lines_) {
    if (is_gone(line)) device_.give_fresh_slot(line.slot);
  }
}

Error StreamGate::operations(CUstream stream, StreamEntry& entry) const {
  const Driver& driver = device_.driver();
  const CUdeviceptr start = address_of(&entry.slot->start);
  const CUdeviceptr end = address_of(&entry.slot->end);
  const Current current(device_);
  if (workers_) {
    const CUresult launched = workers_->launch(stream, entry);
    return launched == kSuccess ? Error() : device_.error("a CUDA worker", launched);
  }
  CUresult result = driver.write_value64(stream, start, entry.value, kWriteValueDefault);
  if (result == kSuccess) result = driver.wait_value64(stream, end, entry.value, kWaitValueGeq);
  if (result == kSuccess && entry.captured) {
    result = driver.write_value64(stream, end, 0, kWriteValueDefault);
  }
  if (result == kSuccess) return {};
  const char* const what =
      entry.captured ? "a stream memory operation in a graph (the body of a conditional node takes "
                       "none: there workers have to run the steps of calls, PITH_CUDA_STEPS)"
                     : "a stream memory operation";
  return device_.error(what, result);
}

Error StreamGate::enqueue(CUstream stream, StreamEntry& entry) {
  const Expected<CaptureInfo> info = capture_of(device_.driver(), stream);
  if (!info) return info.error();
  entry.captured = info->active;
  return info->active ? enqueue_captured(stream, *info, entry) : enqueue_eager(stream, entry);
}

Error StreamGate::enqueue_eager(CUstream stream, StreamEntry& entry) {
  const Expected<Device::Turn> turn = device_.take_slot();
  if (!turn) return turn.error();
  entry.slot = turn->slot;
  entry.value = turn->value;
  entry.line = -1;
  Error error = operations(stream, entry);
  if (error) {
    open(entry);  // the wait may have been enqueued already
    device_.give_slot(*turn);
  }
  return error;
}

Error StreamGate::enqueue_captured(CUstream stream, const CaptureInfo& capture,
                                   StreamEntry& entry) {
  const Expected<std::size_t> index = line_of(stream, capture);
  if (!index) return index.error();
  Capturing& line = capturing_[*index];
  entry.slot = line.slot;
  entry.value = ++line.last;
  entry.gone_graphs = line.ended;
  entry.line = static_cast<int>(*index);
  return operations(stream, entry);
}

Expected<std::size_t> StreamGate::line_of(CUstream stream, const CaptureInfo& capture) {
  const void* const identity = identity_of(stream);
  const auto same = [&](const Capturing& line) {
    return line.capture == capture.id && line.stream == identity;
  };
  const auto found = std::find_if(capturing_.rbegin(), capturing_.rend(), same);
  if (found != capturing_.rend()) {
    return static_cast<std::size_t>(std::distance(found, capturing_.rend())) - 1;
  }
  const Expected<Slot*> slot = device_.take_fresh_slot();
  if (!slot) return slot.error();
  Ended ended = watch(capture.graph);
  const std::lock_guard lock(mutex_);
  std::size_t index = capturing_.size();
  if (spare_lines_.empty()) {
    capturing_.emplace_back();
  } else {
    index = spare_lines_.back();
    spare_lines_.pop_back();
  }
  capturing_[index] = {capture.id, identity, *slot, ended, 0};
  fresh_lines_.push_back({index, *slot, std::move(ended)});
  fresh_.store(true, std::memory_order_release);
  return index;
}

// Null: the driver cannot tell when the graph is destroyed.
StreamGate::Ended StreamGate::watch(CUgraph graph) const {
  const Driver& driver = device_.driver();
  if (!driver.user_object_create || !driver.graph_retain_user_object) return nullptr;
  auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto mark = [](void* data) {
    const std::unique_ptr<Ended> held(static_cast<Ended*>(data));
    (*held)->store(true, std::memory_order_release);
  };
  auto held = std::make_unique<Ended>(ended);
  CUuserObject object = nullptr;
  CUresult result =
      driver.user_object_create(&object, held.get(), mark, 1, kUserObjectNoDestructorSync);
  if (result != kSuccess) return nullptr;
  [[maybe_unused]] Ended* const objects = held.release();
  result = driver.graph_retain_user_object(graph, object, 1, kGraphUserObjectMove);
  if (result == kSuccess) return ended;
  if (driver.user_object_release) driver.user_object_release(object, 1);
  return nullptr;
}

void StreamGate::publish(StreamEntry& entry) {
  const std::lock_guard lock(mutex_);
  fresh_entries_.push_back(&entry);
  fresh_.store(true, std::memory_order_release);
}

void StreamGate::take_fresh() {
  if (!fresh_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  fresh_.store(false, std::memory_order_relaxed);
  for (FreshLine& fresh : fresh_lines_) {
    if (lines_.size() <= fresh.index) lines_.resize(fresh.index + 1);
    lines_[fresh.index] = {fresh.slot, std::move(fresh.ended), {}, false};
    ++live_lines_;
  }
  fresh_lines_.clear();
  for (StreamEntry* entry : fresh_entries_) {
    if (!entry->captured) {
      waiting_.push_back(entry);
      continue;
    }
    Line& line = lines_[static_cast<std::size_t>(entry->line)];
    if (line.entries.size() < entry->value) line.entries.resize(entry->value);
    line.entries[entry->value - 1] = entry;
  }
  fresh_entries_.clear();
}

// A stream may go on before its call has ended here; and a failed device leaves flags set that are
// never reset.
bool StreamGate::is_gone(const Line& line) {
  return line.slot && !line.running && line.ended && line.ended->load(std::memory_order_acquire) &&
         line.slot->started() == 0 && load_word(line.slot->end) == 0;
}

void StreamGate::forget(std::size_t index) {
  const Line gone = std::exchange(lines_[index], Line());
  --live_lines_;
  for (StreamEntry* entry : gone.entries) {
    if (entry) entry->gone(*entry);
  }
  device_.give_fresh_slot(gone.slot);
  const std::lock_guard lock(mutex_);
  spare_lines_.push_back(index);
}

void StreamGate::open(StreamEntry& entry) { store_word(entry.slot->end, entry.value); }

void StreamGate::close(StreamEntry& entry) {
  if (entry.captured) {
    lines_[static_cast<std::size_t>(entry.line)].running = false;
  } else {
    device_.give_slot({entry.slot, entry.value});
  }
}

void StreamGate::abandon(void (*end)(StreamEntry& entry)) {
  progress();
  std::vector<StreamEntry*> left;
  left.swap(waiting_);
  for (StreamEntry* entry : left) end(*entry);
}

bool StreamGate::busy() const {
  return !waiting_.empty() || live_lines_ > 0 || fresh_.load(std::memory_order_relaxed);
}

bool StreamGate::start_waiting() {
  bool any = false;
  for (std::size_t i = 0; i < waiting_.size();) {
    StreamEntry& entry = *waiting_[i];
    if (entry.slot->started() < entry.value) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    entry.started(entry);
    any = true;
  }
  return any;
}

bool StreamGate::start_replayed() {
  bool any = false;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (is_gone(lines_[i])) {
      take_fresh();  // entries captured meanwhile are gone, too
      forget(i);
      continue;
    }
    Line& line = lines_[i];
    const std::uint64_t started = line.running || !line.slot ? 0 : line.slot->started();
    if (started == 0 || started > line.entries.size() || !line.entries[started - 1]) continue;
    line.running = true;
    std::atomic_ref(line.slot->start).store(0, std::memory_order_relaxed);
    StreamEntry& entry = *line.entries[started - 1];
    entry.started(entry);
    any = true;
  }
  return any;
}

bool StreamGate::progress() {
  take_fresh();
  bool any = start_waiting();
  any |= start_replayed();
  if (any) last_start_ns_ = monotonic_ns();
  return any;
}

// No descriptor signals that a device wrote memory, and sleeping would delay the stream.
bool StreamGate::arm() {
  const bool lively = live_lines_ > 0 && monotonic_ns() - last_start_ns_ < lively_ns;
  if (waiting_.empty() && !lively && !fresh_.load(std::memory_order_relaxed)) return true;
  sched_yield();
  return false;
}

}  // namespace pith::cuda
