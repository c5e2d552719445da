// What streams execute: copies, fills, memory operations, host functions and stand-in kernels.
#include <sys/resource.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

CUresult submit_copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (bytes == 0) return submit(stream, [] {});
  if (to == 0 || from == 0) return kErrorInvalidValue;
  // What the driver knows must be as long as the copy; it cannot tell of pageable memory.
  for (const CUdeviceptr end : {to, from}) {
    if (!is_pageable(end) && check_range(end, bytes) != kSuccess) return kErrorInvalidValue;
  }
  if (is_pageable(to) || is_pageable(from)) ++state().counters.pageable_copies;
  const bool by_copy_engine = is_device(to) != is_device(from);
  if (by_copy_engine) ++state().counters.host_copies;
  const auto copy = [to, from, bytes] {
    std::memmove(reinterpret_cast<void*>(static_cast<std::uintptr_t>(to)),
                 reinterpret_cast<const void*>(static_cast<std::uintptr_t>(from)), bytes);
  };
  return submit(stream, copy, by_copy_engine ? Sort::host_copy : Sort::other);
}

template <class T>
CUresult check_word(CUdeviceptr address) {
  if (address % sizeof(T) != 0) return kErrorInvalidValue;
  return check_range(address, sizeof(T));
}

template <class T>
std::atomic_ref<T> word_at(CUdeviceptr address) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(static_cast<std::uintptr_t>(address)));
}

template <class T>
bool reached(T now, T value, unsigned condition) {
  switch (condition) {
    case kWaitValueGeq:
      return static_cast<std::make_signed_t<T>>(now - value) >= 0;
    case kWaitValueEq:
      return now == value;
    case kWaitValueAnd:
      return (now & value) != 0;
    default:
      return static_cast<T>(~(now | value)) != 0;
  }
}

// Nobody tells that memory was written: spin shortly, then yield, then sleep. A context that fails
// waits no more.
template <class T>
void wait_for_value(CUcontext context, CUdeviceptr address, T value, unsigned condition) {
  const auto word = word_at<T>(address);
  for (int round = 0; !reached<T>(word.load(std::memory_order_acquire), value, condition);
       ++round) {
    if (context->fault != kSuccess) return;
    if (round < 200) continue;
    if (round < 250) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(round < 1000 ? 20 : 100));
    }
  }
}

template <class T>
CUresult submit_wait(CUstream stream, CUdeviceptr address, T value, unsigned flags) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  const unsigned condition = flags & ~kWaitValueFlush;
  if (condition > kWaitValueNor) return kErrorInvalidValue;
  if (CUresult r = check_word<T>(address); r != kSuccess) return r;
  CUresult result = kSuccess;
  CUcontext context = context_of(stream, result);
  if (context == nullptr) return result;
  const auto wait = [=] { wait_for_value<T>(context, address, value, condition); };
  return submit(stream, wait, Sort::wait);
}

template <class T>
CUresult submit_write(CUstream stream, CUdeviceptr address, T value, unsigned flags) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  if (flags > kWriteValueNoMemoryBarrier) return kErrorInvalidValue;
  if (CUresult r = check_word<T>(address); r != kSuccess) return r;
  const auto write = [=] { word_at<T>(address).store(value, std::memory_order_seq_cst); };
  return submit(stream, write, Sort::write);
}

struct Usage {
  Clock::time_point wall = Clock::now();
  std::chrono::microseconds cpu{0};
  long sleeps = 0;
};

Usage usage_now() {
  rusage raw{};
  getrusage(RUSAGE_THREAD, &raw);
  Usage usage;
  usage.cpu = std::chrono::seconds(raw.ru_utime.tv_sec + raw.ru_stime.tv_sec) +
              std::chrono::microseconds(raw.ru_utime.tv_usec + raw.ru_stime.tv_usec);
  usage.sleeps = raw.ru_nvcsw;
  return usage;
}

// Too long, and not merely because the machine was busy: it slept, or it burnt the time.
bool has_blocked(const Usage& before, const Usage& after) {
  const auto limit = std::chrono::milliseconds(state().host_limit_ms);
  return after.wall - before.wall > limit &&
         (after.sleeps > before.sleeps || after.cpu - before.cpu > limit);
}

void run_host_function(CUcontext context, CUhostFn function, void* argument) {
  State& s = state();
  const auto self = std::this_thread::get_id();
  {
    std::lock_guard lock(s.mutex);
    s.running_host_functions[self] = Clock::now();
  }
  const Usage before = usage_now();
  run_callback(function, argument);
  const bool blocked = has_blocked(before, usage_now());
  {
    std::lock_guard lock(s.mutex);
    s.running_host_functions.erase(self);
    ++s.counters.host_functions;
    if (blocked) ++s.counters.blocked;
  }
  if (!blocked || s.strict == Strict::count) return;
  if (s.strict == Strict::abort) {
    std::fprintf(stderr, "cuda stub: a host function blocked its stream\n");
    std::abort();
  }
  context->fault = kErrorLaunchFailed;
}

}  // namespace

CUcontext context_of(CUstream handle, CUresult& result) {
  std::lock_guard lock(state().mutex);
  CUstream stream = resolve(handle, result);
  return stream != nullptr ? stream->context : nullptr;
}

extern "C" {

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  return submit_copy(to, from, bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes,
                              CUstream stream) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  if (bytes != 0 && check_range(to, bytes) != kSuccess) return kErrorInvalidValue;
  return submit_copy(to, reinterpret_cast<std::uintptr_t>(from), bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  if (bytes != 0 && check_range(from, bytes) != kSuccess) return kErrorInvalidValue;
  return submit_copy(reinterpret_cast<std::uintptr_t>(to), from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                              CUstream stream) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  const bool known =
      bytes == 0 || (check_range(to, bytes) == kSuccess && check_range(from, bytes) == kSuccess);
  return known ? submit_copy(to, from, bytes, stream) : kErrorInvalidValue;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  if (bytes == 0) return submit(stream, [] {});
  if (CUresult r = check_range(to, bytes); r != kSuccess) return r;
  return submit(stream, [=] {
    std::memset(reinterpret_cast<void*>(static_cast<std::uintptr_t>(to)), value, bytes);
  });
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value,
                                 unsigned flags) {
  return submit_write<std::uint32_t>(stream, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value,
                                 unsigned flags) {
  return submit_write<std::uint64_t>(stream, address, value, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value,
                                unsigned flags) {
  return submit_wait<std::uint32_t>(stream, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value,
                                unsigned flags) {
  return submit_wait<std::uint64_t>(stream, address, value, flags);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  if (function == nullptr) return kErrorInvalidValue;
  CUresult result = kSuccess;
  CUcontext context = context_of(stream, result);
  if (context == nullptr) return result;
  return submit(stream, [=] { run_host_function(context, function, argument); });
}

CUresult pithStubLaunch(CUstream stream, void (*function)(void*), const void* args,
                        std::size_t bytes) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  if (function == nullptr || (args == nullptr && bytes != 0)) return kErrorInvalidValue;
  CUresult result = kSuccess;
  CUcontext context = context_of(stream, result);
  if (context == nullptr) return result;
  if (context != current_context()) return kErrorInvalidHandle;
  std::vector<std::max_align_t> copy((bytes + sizeof(std::max_align_t) - 1) /
                                     sizeof(std::max_align_t));
  if (bytes != 0) std::memcpy(copy.data(), args, bytes);
  return submit(stream, [function, copy = std::move(copy)] {
    auto fresh = copy;  // a kernel may write its arguments; the next replay must not see that
    run_callback(function, fresh.data());
  });
}

}  // extern "C"

}  // namespace pith::cuda
