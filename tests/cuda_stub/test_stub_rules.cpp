// The rules that the stub driver enforces: illegal calls during a capture, calls inside host
// functions, host functions that block.
#include "tests/cuda_stub/fixture.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

// Ends a capture that is expected to have failed with `error`.
void end_with(CUstream stream, CUresult error) {
  CUgraph graph = nullptr;
  CHECK(cu().capture_end(stream, &graph) == error);
  CHECK(graph == nullptr);
  CHECK(status_of(stream) == kCaptureNone);
}

// A host function's attempt to use CUDA.
struct Attempt {
  CUresult result = -1;
  CUstream stream = nullptr;
};
void try_to_allocate(void* raw) {
  CUdeviceptr memory = 0;
  auto* attempt = static_cast<Attempt*>(raw);
  attempt->result = cu().mem_alloc(&memory, 8);
}
void try_to_synchronise(void* raw) {
  auto* attempt = static_cast<Attempt*>(raw);
  attempt->result = cu().stream_synchronize(attempt->stream);
}
void try_to_launch(void* raw) {
  auto* attempt = static_cast<Attempt*>(raw);
  attempt->result = cu().write_value32(attempt->stream, 0, 0, 0);
}
void block_60_ms(void*) { sleep_ms(60); }
void wait_for_word(void* raw) {
  while (*static_cast<std::atomic<int>*>(raw) == 0) sleep_ms(1);
}
void nothing(void*) {}

StubCounters counters() {
  StubCounters now;
  pithStubCounters(&now);
  return now;
}

}  // namespace

TEST_CASE("a capturing stream can be neither synchronised nor queried") {
  Device device;
  Stream stream;
  OK(cu().capture_begin(stream, kCaptureRelaxed));
  CHECK(cu().capture_begin(stream, kCaptureRelaxed) == kErrorIllegalState);
  CHECK(cu().stream_synchronize(stream) == kErrorCaptureUnsupported);
  CHECK(status_of(stream) == kCaptureInvalidated);
  CHECK(cu().stream_query(stream) == kErrorCaptureInvalidated);
  CHECK(cu().memset_async(1, 0, 0, stream) == kErrorCaptureInvalidated);
  end_with(stream, kErrorCaptureInvalidated);
  CUgraph graph = nullptr;
  CHECK(cu().capture_end(stream, &graph) == kErrorIllegalState);
  OK(cu().capture_begin(stream, kCaptureRelaxed));
  CHECK(cu().ctx_synchronize() == kErrorCaptureUnsupported);
  end_with(stream, kErrorCaptureInvalidated);
  OK(cu().stream_synchronize(stream));
}

TEST_CASE("a captured event can be neither queried nor waited for") {
  Device device;
  Stream stream, other;
  Event event;
  OK(cu().capture_begin(stream, kCaptureRelaxed));
  OK(cu().event_record(event, stream));
  CHECK(cu().event_query(event) == kErrorCapturedEvent);
  end_with(stream, kErrorCaptureInvalidated);
  CHECK(cu().event_synchronize(event) == kErrorCapturedEvent);
  CHECK(cu().stream_wait_event(other, event, 0) == kErrorCapturedEvent);
  OK(cu().event_record(event, stream));  // usable again
  OK(cu().event_synchronize(event));
}

TEST_CASE("unsafe calls depend on the modes of capture and thread") {
  Device device;
  Stream stream;
  CUdeviceptr memory = 0;
  const auto elsewhere = [&](auto call) {
    CUresult result = -1;
    std::thread([&] {
      cu().ctx_set_current(device.context);
      result = call();
    }).join();
    return result;
  };
  const auto allocate = [&] {
    const CUresult result = cu().mem_alloc(&memory, 8);
    if (result == kSuccess) cu().mem_free(memory);
    return result;
  };
  struct Case {
    CUstreamCaptureMode mode;
    CUresult here, there;
  };
  for (const Case& c : {Case{kCaptureGlobal, kErrorCaptureUnsupported, kErrorCaptureUnsupported},
                        Case{kCaptureThreadLocal, kErrorCaptureUnsupported, kSuccess},
                        Case{kCaptureRelaxed, kSuccess, kSuccess}}) {
    OK(cu().capture_begin(stream, c.mode));
    CHECK(elsewhere(allocate) == c.there);
    CUstreamCaptureMode relaxed = kCaptureRelaxed;
    OK(cu().capture_exchange_mode(&relaxed));
    CHECK(relaxed == kCaptureGlobal);
    CHECK(allocate() == kSuccess);
    OK(cu().capture_exchange_mode(&relaxed));
    CHECK(allocate() == c.here);
    CUgraph graph = nullptr;
    const CUresult ended = cu().capture_end(stream, &graph);
    CHECK(ended == (c.here == kSuccess ? kSuccess : kErrorCaptureInvalidated));
    if (graph != nullptr) OK(cu().graph_destroy(graph));
  }
}

TEST_CASE("a capture ends in its thread, on its stream, with all work joined") {
  Device device;
  Stream stream, side;
  Event fork;
  std::uint64_t word = 0;
  CUgraph graph = nullptr;
  OK(cu().capture_begin(stream, kCaptureThreadLocal));
  CUresult result = kSuccess;
  std::thread([&] { result = cu().capture_end(stream, &graph); }).join();
  CHECK(result == kErrorCaptureWrongThread);
  OK(cu().event_record(fork, stream));
  OK(cu().stream_wait_event(side, fork, 0));
  OK(launch_increment(side, &word));
  end_with(stream, kErrorCaptureUnjoined);
  CHECK(status_of(side) == kCaptureNone);
  OK(cu().capture_begin(stream, kCaptureThreadLocal));
  OK(cu().event_record(fork, stream));
  OK(cu().stream_wait_event(side, fork, 0));
  CHECK(cu().capture_end(side, &graph) == kErrorCaptureUnmatched);
  end_with(stream, kErrorCaptureInvalidated);
}

TEST_CASE("a capture depends on nothing outside, and captures do not merge") {
  Device device;
  Stream stream, other;
  Event outside, inside;
  OK(cu().event_record(outside, other));
  OK(cu().capture_begin(stream, kCaptureRelaxed));
  CHECK(cu().stream_wait_event(stream, outside, 0) == kErrorCaptureIsolation);
  end_with(stream, kErrorCaptureInvalidated);
  OK(cu().capture_begin(stream, kCaptureRelaxed));
  OK(cu().capture_begin(other, kCaptureRelaxed));
  OK(cu().event_record(inside, stream));
  CHECK(cu().stream_wait_event(other, inside, 0) == kErrorCaptureMerge);
  end_with(stream, kErrorCaptureInvalidated);
  end_with(other, kErrorCaptureInvalidated);
}

TEST_CASE("the legacy stream is not captured and breaks captures of blocking streams") {
  Device device;
  Stream blocking(kStreamDefault), free;
  CHECK(cu().capture_begin(nullptr, kCaptureRelaxed) == kErrorCaptureUnsupported);
  OK(cu().capture_begin(free, kCaptureRelaxed));
  OK(cu().launch_host_func(nullptr, nothing, nullptr));
  CUgraph graph = nullptr;
  OK(cu().capture_end(free, &graph));
  OK(cu().graph_destroy(graph));
  OK(cu().stream_synchronize(nullptr));
  OK(cu().capture_begin(blocking, kCaptureRelaxed));
  CHECK(cu().launch_host_func(nullptr, nothing, nullptr) == kErrorCaptureImplicit);
  end_with(blocking, kErrorCaptureInvalidated);
}

TEST_CASE("calls inside host functions and kernels are counted, and refused when strict") {
  Device device;
  Stream stream, other;
  Attempt attempt;
  attempt.stream = other;
  Attempt* argument = &attempt;
  for (auto function : {try_to_allocate, try_to_synchronise, try_to_launch}) {
    pithStubStrict(Strict::fail, 100);
    pithStubReset();
    OK(cu().launch_host_func(stream, function, &attempt));
    OK(cu().stream_synchronize(stream));
    CHECK(attempt.result == kErrorNotPermitted);
    CHECK(counters().calls_from_host_functions == 1);
    CHECK(counters().host_functions == 1);
  }
  OK(cu().stub_launch(
      stream, [](void* raw) { try_to_allocate(*static_cast<Attempt**>(raw)); }, &argument,
      sizeof(void*)));
  OK(cu().stream_synchronize(stream));
  CHECK(attempt.result == kErrorNotPermitted);
  pithStubStrict(Strict::count, 100);
  OK(cu().launch_host_func(stream, try_to_synchronise, &attempt));
  OK(cu().stream_synchronize(stream));
  CHECK(attempt.result == kSuccess);
  CHECK(counters().calls_from_host_functions == 3);
}

TEST_CASE("a host function that blocks is noticed, while it runs and afterwards") {
  Device device;
  Stream stream;
  pithStubStrict(Strict::count, 20);
  OK(cu().launch_host_func(stream, nothing, nullptr));
  OK(cu().launch_host_func(stream, block_60_ms, nullptr));
  OK(cu().stream_synchronize(stream));
  CHECK(counters().blocked_host_functions == 1);
  std::atomic<int> word{0};
  OK(cu().launch_host_func(stream, wait_for_word, &word));
  for (int i = 0; i < 1000 && counters().blocked_host_functions < 2; ++i) sleep_ms(5);
  CHECK(counters().blocked_host_functions == 2);
  word = 1;
  OK(cu().stream_synchronize(stream));
  CHECK(counters().blocked_host_functions == 2);
  pithStubStrict(Strict::fail, 20);
  OK(cu().launch_host_func(stream, block_60_ms, nullptr));
  CHECK(cu().stream_synchronize(stream) == kErrorLaunchFailed);
  CHECK(cu().launch_host_func(stream, nothing, nullptr) == kErrorLaunchFailed);  // sticky
  pithStubReset();
  OK(cu().launch_host_func(stream, nothing, nullptr));
  OK(cu().stream_synchronize(stream));
}

TEST_CASE("a context that has failed runs nothing of what is queued, on any of its streams") {
  Device device;
  Stream stream;
  Stream other;
  Words words(4);
  pithStubFailAfter(2);
  OK(cu().wait_value64(stream, words.at(0), 1, kWaitValueGeq));
  OK(cu().wait_value64(other, words.at(1), 1, kWaitValueGeq));
  OK(cu().write_value64(stream, words.at(2), 1, 0));
  OK(cu().write_value64(other, words.at(3), 1, 0));
  const Event behind;
  OK(cu().event_record(behind, stream));
  words[0].store(1, std::memory_order_release);
  CHECK(cu().event_synchronize(behind) == kErrorLaunchFailed);
  CHECK(cu().stream_synchronize(other) == kErrorLaunchFailed);  // its wait has ended
  CHECK(words[2].load() == 0);
  CHECK(words[3].load() == 0);
  CHECK(cu().stream_query(stream) == kErrorLaunchFailed);
  CHECK(cu().write_value64(stream, words.at(2), 1, 0) == kErrorLaunchFailed);
  CUdeviceptr memory = 0;
  CHECK(cu().mem_alloc(&memory, 64) == kErrorLaunchFailed);
  {
    CUcontext second = nullptr;
    OK(cu().primary_ctx_retain(&second, 1));
    OK(cu().ctx_push(second));
    Stream well;
    OK(cu().stream_synchronize(well));
    OK(cu().ctx_pop(&second));
  }
  pithStubReset();
  OK(cu().write_value64(stream, words.at(2), 1, 0));
  OK(cu().stream_synchronize(stream));
  CHECK(words[2].load() == 1);
}

TEST_CASE("a copy must fit the memory that is known") {
  Device device;
  Stream stream;
  Words words(2);
  std::uint64_t pageable[4] = {};
  CHECK(cu().memcpy_async(device_address(pageable), words.at(0), 32, stream) == kErrorInvalidValue);
  CHECK(cu().memcpy_async(words.at(1), device_address(pageable), 16, stream) == kErrorInvalidValue);
  OK(cu().memcpy_async(device_address(pageable), words.at(0), 16, stream));
  OK(cu().stream_synchronize(stream));
}

TEST_CASE("counters tell what a steady state does") {
  Device device;
  Stream stream;
  Words words(1);
  std::uint64_t pageable = 0;
  pithStubReset();
  OK(cu().memcpy_async(device_address(&pageable), words.at(0), 8, stream));
  OK(cu().write_value64(stream, words.at(0), 1, 0));
  OK(cu().stream_synchronize(stream));
  const StubCounters now = counters();
  CHECK((now.allocs == 0 && now.frees == 0 && now.syncs == 1 && now.queries == 0));
  CHECK((now.launches == 2 && now.pageable_copies == 1 && now.graph_launches == 0));
  CUdeviceptr memory = 0;
  OK(cu().mem_alloc(&memory, 64));
  const std::uint64_t before = counters().host_copies;
  OK(cu().memcpy_async(memory, memory + 32, 32, stream));
  CHECK(counters().host_copies == before);
  OK(cu().memcpy_async(memory, words.at(0), 8, stream));
  OK(cu().memcpy_async(words.at(0), memory, 8, stream));
  OK(cu().stream_synchronize(stream));
  CHECK(counters().host_copies == before + 2);
  OK(cu().mem_free(memory));
}

TEST_CASE("the body of a conditional node takes no memory operations") {
  const Device device;
  const Stream stream;
  const Words words(1);
  for (const bool waits : {true, false}) {
    OK(cu().capture_begin(stream, kCaptureThreadLocal));
    pithStubCapturesBody(stream);
    OK(cu().memcpy_async(words.at(0), words.at(0), 8, stream));
    const CUresult refused = waits ? cu().wait_value64(stream, words.at(0), 0, kWaitValueGeq)
                                   : cu().write_value64(stream, words.at(0), 1, kWriteValueDefault);
    CHECK(refused == kErrorNotSupported);
    end_with(stream, kErrorCaptureInvalidated);
  }
}
