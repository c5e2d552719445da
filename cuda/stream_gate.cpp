#include "cuda/stream_gate.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "core/clock.hpp"

namespace pith::cuda {

namespace {

// How long after a replay the next one is expected soon.
constexpr std::uint64_t lively_ns = 50'000'000;

}  // namespace

Expected<CaptureInfo> capture_of(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = kCaptureNone;
  CaptureInfo info;
  CUresult result = kErrorNotSupported;
  if (driver.capture_info_v3) {
    result = driver.capture_info_v3(stream, &status, &info.id, nullptr, nullptr, nullptr, nullptr);
  } else if (driver.capture_info_v2) {
    result = driver.capture_info_v2(stream, &status, &info.id, nullptr, nullptr, nullptr);
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

// Slots of captures are never used again: graphs of the application still write to them.
StreamGate::~StreamGate() {
  for (Passage* passage : waiting_) device_.give_slot({passage->slot, passage->value});
}

Error StreamGate::operations(CUstream stream, Passage& passage) const {
  const Driver& driver = device_.driver();
  const CUdeviceptr start = address_of(&passage.slot->start);
  const CUdeviceptr end = address_of(&passage.slot->end);
  const Current current(device_);
  if (workers_) {
    const CUresult launched = workers_->launch(stream, passage);
    return launched == kSuccess ? Error() : device_.error("a CUDA worker", launched);
  }
  CUresult result = driver.write_value64(stream, start, passage.value, kWriteValueDefault);
  if (result == kSuccess) result = driver.wait_value64(stream, end, passage.value, kWaitValueGeq);
  if (result == kSuccess && passage.captured) {
    result = driver.write_value64(stream, end, 0, kWriteValueDefault);
  }
  return result == kSuccess ? Error() : device_.error("a stream memory operation", result);
}

Error StreamGate::enqueue(CUstream stream, Passage& passage) {
  const Expected<CaptureInfo> info = capture_of(device_.driver(), stream);
  if (!info) return info.error();
  passage.captured = info->active;
  return info->active ? enqueue_captured(stream, info->id, passage)
                      : enqueue_eager(stream, passage);
}

Error StreamGate::enqueue_eager(CUstream stream, Passage& passage) {
  const Expected<Device::Turn> turn = device_.take_slot();
  if (!turn) return turn.error();
  passage.slot = turn->slot;
  passage.value = turn->value;
  passage.line = -1;
  Error error = operations(stream, passage);
  if (error) {
    open(passage);  // the stream may hold the wait already
    device_.give_slot(*turn);
  }
  return error;
}

Error StreamGate::enqueue_captured(CUstream stream, std::uint64_t capture, Passage& passage) {
  const void* const identity = identity_of(stream);
  const auto same = [&](const Line& line) {
    return line.capture == capture && line.stream == identity;
  };
  auto line = std::find_if(capturing_.rbegin(), capturing_.rend(), same);
  if (line == capturing_.rend()) {
    // An eager slot would not do: a stream may still be looking at the value we set back.
    const Expected<Slot*> slot = device_.take_fresh_slot();
    if (!slot) return slot.error();
    capturing_.push_back({capture, identity, *slot, {}, false});
    line = capturing_.rbegin();
  }
  line->passages.push_back(&passage);
  passage.slot = line->slot;
  passage.value = line->passages.size();
  passage.line = static_cast<int>(std::distance(line, capturing_.rend())) - 1;
  return operations(stream, passage);
}

void StreamGate::publish(Passage& passage) {
  const std::lock_guard lock(mutex_);
  fresh_passages_.push_back(&passage);
  fresh_.store(true, std::memory_order_release);
}

void StreamGate::take_fresh() {
  if (!fresh_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  fresh_.store(false, std::memory_order_relaxed);
  for (Passage* passage : fresh_passages_) {
    if (!passage->captured) {
      waiting_.push_back(passage);
      continue;
    }
    const auto index = static_cast<std::size_t>(passage->line);
    if (lines_.size() <= index) lines_.resize(index + 1);
    Line& line = lines_[index];
    line.slot = passage->slot;
    if (line.passages.size() < passage->value) line.passages.resize(passage->value);
    line.passages[passage->value - 1] = passage;
  }
  fresh_passages_.clear();
}

void StreamGate::open(Passage& passage) { store_word(passage.slot->end, passage.value); }

void StreamGate::close(Passage& passage) {
  if (passage.captured) {
    lines_[static_cast<std::size_t>(passage.line)].running = false;
  } else {
    device_.give_slot({passage.slot, passage.value});
  }
}

void StreamGate::abandon(void (*end)(Passage& passage)) {
  progress();
  std::vector<Passage*> left;
  left.swap(waiting_);
  for (Passage* passage : left) end(*passage);
}

bool StreamGate::busy() const {
  return !waiting_.empty() || !lines_.empty() || fresh_.load(std::memory_order_relaxed);
}

bool StreamGate::progress() {
  take_fresh();
  bool any = false;
  for (std::size_t i = 0; i < waiting_.size();) {
    Passage& passage = *waiting_[i];
    if (passage.slot->started() < passage.value) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    passage.started(passage);
    any = true;
  }
  for (Line& line : lines_) {
    const std::uint64_t started = line.running || !line.slot ? 0 : line.slot->started();
    if (started == 0 || started > line.passages.size() || !line.passages[started - 1]) continue;
    line.running = true;
    std::atomic_ref(line.slot->start).store(0, std::memory_order_relaxed);
    Passage& passage = *line.passages[started - 1];
    passage.started(passage);
    any = true;
  }
  if (any) last_start_ns_ = monotonic_ns();
  return any;
}

// No descriptor tells that a device has written memory, and a nap would delay the stream.
bool StreamGate::arm() {
  const bool lively = !lines_.empty() && monotonic_ns() - last_start_ns_ < lively_ns;
  if (waiting_.empty() && !lively && !fresh_.load(std::memory_order_relaxed)) return true;
  sched_yield();
  return false;
}

}  // namespace pith::cuda
