#include "cuda/stream_gate.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

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

// Slots of lines that are not gone are never used again: graphs of the application still write to
// them.
StreamGate::~StreamGate() {
  for (Passage* passage : waiting_) device_.give_slot({passage->slot, passage->value});
  for (const Line& line : lines_) {
    if (is_gone(line)) device_.give_fresh_slot(line.slot);
  }
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
  if (result == kSuccess) return {};
  const char* const what =
      passage.captured
          ? "a stream memory operation in a graph (the body of a conditional node takes "
            "none: there workers have to run the steps of calls, PITH_CUDA_STEPS)"
          : "a stream memory operation";
  return device_.error(what, result);
}

Error StreamGate::enqueue(CUstream stream, Passage& passage) {
  const Expected<CaptureInfo> info = capture_of(device_.driver(), stream);
  if (!info) return info.error();
  passage.captured = info->active;
  return info->active ? enqueue_captured(stream, *info, passage) : enqueue_eager(stream, passage);
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

Error StreamGate::enqueue_captured(CUstream stream, const CaptureInfo& capture, Passage& passage) {
  const Expected<std::size_t> index = line_of(stream, capture);
  if (!index) return index.error();
  Capturing& line = capturing_[*index];
  passage.slot = line.slot;
  passage.value = ++line.last;
  passage.gone_graphs = line.ended;
  passage.line = static_cast<int>(*index);
  return operations(stream, passage);
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

// Null: nobody will tell when the graph is gone.
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

void StreamGate::publish(Passage& passage) {
  const std::lock_guard lock(mutex_);
  fresh_passages_.push_back(&passage);
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
  for (Passage* passage : fresh_passages_) {
    if (!passage->captured) {
      waiting_.push_back(passage);
      continue;
    }
    Line& line = lines_[static_cast<std::size_t>(passage->line)];
    if (line.passages.size() < passage->value) line.passages.resize(passage->value);
    line.passages[passage->value - 1] = passage;
  }
  fresh_passages_.clear();
}

// A call may not have ended here though its stream has gone on; where a device has failed, flags
// are left behind that nobody takes back.
bool StreamGate::is_gone(const Line& line) {
  return line.slot && !line.running && line.ended && line.ended->load(std::memory_order_acquire) &&
         line.slot->started() == 0 && load_word(line.slot->end) == 0;
}

void StreamGate::forget(std::size_t index) {
  const Line gone = std::exchange(lines_[index], Line());
  --live_lines_;
  for (Passage* passage : gone.passages) {
    if (passage) passage->gone(*passage);
  }
  device_.give_fresh_slot(gone.slot);
  const std::lock_guard lock(mutex_);
  spare_lines_.push_back(index);
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
  return !waiting_.empty() || live_lines_ > 0 || fresh_.load(std::memory_order_relaxed);
}

bool StreamGate::start_waiting() {
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
  return any;
}

bool StreamGate::start_replayed() {
  bool any = false;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (is_gone(lines_[i])) {
      take_fresh();  // what was captured since is gone with it
      forget(i);
      continue;
    }
    Line& line = lines_[i];
    const std::uint64_t started = line.running || !line.slot ? 0 : line.slot->started();
    if (started == 0 || started > line.passages.size() || !line.passages[started - 1]) continue;
    line.running = true;
    std::atomic_ref(line.slot->start).store(0, std::memory_order_relaxed);
    Passage& passage = *line.passages[started - 1];
    passage.started(passage);
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

// No descriptor tells that a device has written memory, and a nap would delay the stream.
bool StreamGate::arm() {
  const bool lively = live_lines_ > 0 && monotonic_ns() - last_start_ns_ < lively_ns;
  if (waiting_.empty() && !lively && !fresh_.load(std::memory_order_relaxed)) return true;
  sched_yield();
  return false;
}

}  // namespace pith::cuda
