// What the tests of the stub driver share: the loaded driver and owners for its objects.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "catch.hpp"
#include "tests/cuda_stub/stub.hpp"

namespace pith::cuda::test {

inline const Driver& cu() {
  static const Driver driver = [] {
    Driver loaded;
    std::string why;
    if (!load_driver(loaded, why)) throw std::runtime_error(why);
    return loaded;
  }();
  return driver;
}

#define OK(call) REQUIRE((call) == kSuccess)

inline CUdeviceptr device_address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

template <class T>
T* host_view(CUdeviceptr address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

// One device made current, counters cleared; leaves no context behind.
struct Device {
  explicit Device(int ordinal = 0) {
    OK(cu().init(0));
    OK(cu().primary_ctx_retain(&context, ordinal));
    OK(cu().ctx_set_current(context));
    pithStubStrict(Strict::count, 100);
    pithStubReset();
  }
  ~Device() { cu().ctx_set_current(nullptr); }
  CUcontext context = nullptr;
};

struct Stream {
  explicit Stream(unsigned flags = kStreamNonBlocking) {
    OK(cu().stream_create(&handle, flags, -1));
  }
  ~Stream() { cu().stream_destroy(handle); }
  Stream(const Stream&) = delete;
  operator CUstream() const { return handle; }
  CUstream handle = nullptr;
};

struct Event {
  Event() { OK(cu().event_create(&handle, kEventDefault)); }
  ~Event() { cu().event_destroy(handle); }
  Event(const Event&) = delete;
  operator CUevent() const { return handle; }
  CUevent handle = nullptr;
};

// Words in pinned memory, all zero.
struct Words {
  explicit Words(std::size_t count) {
    OK(cu().host_alloc(&memory, count * 8, kHostAllocPortable | kHostAllocDeviceMap));
    std::memset(memory, 0, count * 8);
  }
  ~Words() { cu().host_free(memory); }
  Words(const Words&) = delete;
  CUdeviceptr at(std::size_t i) const { return device_address(memory) + 8 * i; }
  std::atomic_ref<std::uint64_t> operator[](std::size_t i) const {
    return std::atomic_ref<std::uint64_t>(static_cast<std::uint64_t*>(memory)[i]);
  }
  void* memory = nullptr;
};

// A kernel that adds one to a word.
inline void increment(void* raw) { ++**static_cast<std::uint64_t**>(raw); }
inline CUresult launch_increment(CUstream stream, std::uint64_t* word) {
  return cu().stub_launch(stream, increment, &word, sizeof word);
}

inline void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

inline CUstreamCaptureStatus status_of(CUstream stream) {
  CUstreamCaptureStatus status = -1;
  OK(cu().capture_status(stream, &status));
  return status;
}

}  // namespace pith::cuda::test
