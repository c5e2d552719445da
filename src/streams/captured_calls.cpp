#include "streams/captured_calls.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "core/clock.hpp"

namespace pith {

namespace {

// The driver may report destroyed graphs as gone up to this much later.
constexpr std::uint64_t told_gone_ns = 5'000'000'000;

}  // namespace

CapturedCalls::~CapturedCalls() {
  for (int i = alive_.load(); i > 0; --i) engine_.background_ends();
}

bool CapturedCalls::has_numbers_left(const CollectiveArgs&) {
  const std::lock_guard lock(mutex_);
  return numbers_.has_room();
}

bool CapturedCalls::has_numbers_left(const PairArgs& args) {
  const std::lock_guard lock(mutex_);
  return pairs_.has_room(args.messages);
}

// Runs before anything is captured, because a wait in a graph cannot be removed. It waits for the
// driver, which reports destroyed graphs late: refusing a call that other ranks capture would put
// this rank out of step.
template <class Args>
Error CapturedCalls::check_numbers_left(const Args& args, cuda::CUstream stream) {
  if (has_numbers_left(args)) return {};
  const Expected<cuda::CaptureInfo> info = cuda::capture_of(driver_, stream);
  if (!info) return info.error();
  if (!info->active) return {};
  const std::uint64_t begin_ns = monotonic_ns();
  while (monotonic_ns() - begin_ns < told_gone_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (has_numbers_left(args)) return {};
  }
  constexpr std::uint32_t most = CapturedNumbers::most;
  return {Code::invalid_usage,
          fmt::format("stream {}: graphs hold too many captured calls of this communicator, or "
                      "messages to or from one rank: {} at a time, expected the graphs of each one "
                      "after the first {} to be gone before {} more are captured; destroy them, or "
                      "capture with a new communicator",
                      static_cast<const void*>(stream), most, most / 2, most / 2)};
}

Error CapturedCalls::check(const CollectiveArgs& args, cuda::CUstream stream) {
  return check_numbers_left(args, stream);
}

Error CapturedCalls::check(const PairArgs& args, cuda::CUstream stream) {
  return check_numbers_left(args, stream);
}

Error CapturedCalls::check(const CompressedArgs&, cuda::CUstream stream) {
  const Expected<cuda::CaptureInfo> info = cuda::capture_of(driver_, stream);
  if (!info) return info.error();
  if (!info->active) return {};
  return {Code::invalid_usage,
          fmt::format("stream {} is being captured, expected one that is not: each compressed call "
                      "is another step, which a replay would not be",
                      static_cast<const void*>(stream))};
}

void CapturedCalls::add(StreamCall& call) {
  {
    const std::lock_guard lock(mutex_);
    pairs_.take(call.messages);
    // As for eager calls: only the two ends of a message know of it, so it takes no call number.
    call.number = call.messages.empty() ? numbers_.take() : 0;
  }
  alive_.fetch_add(1, std::memory_order_relaxed);
  engine_.background_begins();
}

void CapturedCalls::count_replay(StreamCall& call) {
  if (call.number != 0) call.number = CapturedNumbers::next_replay(call.number);
  for (Message& message : call.messages) {
    message.number = CapturedNumbers::next_replay(message.number);
  }
}

void CapturedCalls::remove(StreamCall& call) {
  {
    const std::lock_guard lock(mutex_);
    pairs_.give_back(call.messages);
    if (call.number != 0) numbers_.give_back(call.number);
  }
  alive_.fetch_sub(1, std::memory_order_relaxed);
  engine_.background_ends();
}

}  // namespace pith
