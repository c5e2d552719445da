// The stub driver: order in and between streams, memory operations, graphs. The rules that it
// enforces are in ../cuda_stub/test_stub_rules.cpp.

#include "tests/cuda_stub/fixture.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

TEST_CASE("a missing driver is reported, not fatal") {
  Driver driver;
  std::string why;
  CHECK_FALSE(load_driver(driver, why, "libcuda_that_is_not_there.so"));
  CHECK(why.find("libcuda_that_is_not_there") != std::string::npos);
  CHECK(driver.init == nullptr);
  CHECK_FALSE(load_driver(driver, why, "libc.so.6"));
  CHECK(why.find("lacks cu") != std::string::npos);
  CHECK(cu().describe(kErrorNotReady) == "CUDA_ERROR_NOT_READY (device not ready)");
  CHECK(cu().describe(4711) == "CUDA error 4711");
}

TEST_CASE("two devices have contexts of their own") {
  Device first(0);
  int devices = 0;
  OK(cu().device_count(&devices));
  REQUIRE(devices == 2);
  CUdeviceptr a = 0, b = 0;
  OK(cu().mem_alloc(&a, 64));
  Stream on_first;
  CUcontext second = nullptr;
  OK(cu().primary_ctx_retain(&second, 1));
  OK(cu().ctx_push(second));
  OK(cu().mem_alloc(&b, 64));
  int ordinal = -1;
  OK(cu().pointer_attribute(&ordinal, kPointerDeviceOrdinal, a));
  CHECK(ordinal == 0);
  OK(cu().pointer_attribute(&ordinal, kPointerDeviceOrdinal, b + 63));
  CHECK(ordinal == 1);
  Stream on_second;
  CUcontext owner = nullptr;
  OK(cu().stream_get_ctx(on_second, &owner));
  CHECK(owner == second);
  std::uint64_t word = 0;
  CHECK(launch_increment(on_first, &word) == kErrorInvalidHandle);  // wrong current context
  Event event;                                                      // belongs to the second
  CHECK(cu().event_record(event, on_first) == kErrorInvalidHandle);
  OK(cu().memset_async(a, 7, 64, on_first));
  Event unused;
  OK(cu().stream_synchronize(on_first));
  OK(cu().memcpy_dtod_async(b, a, 64, on_second));
  OK(cu().stream_synchronize(on_second));
  CHECK(host_view<unsigned char>(b)[63] == 7);
  OK(cu().mem_free(b));
  OK(cu().ctx_pop(nullptr));
  OK(cu().mem_free(a));
  CHECK(cu().mem_free(a) == kErrorInvalidValue);
}

TEST_CASE("addresses are told apart") {
  Device device;
  CUdeviceptr memory = 0;
  OK(cu().mem_alloc(&memory, 1000));
  unsigned type = 0;
  OK(cu().pointer_attribute(&type, kPointerMemoryType, memory + 999));
  CHECK(type == kMemoryTypeDevice);
  CHECK(cu().pointer_attribute(&type, kPointerMemoryType, memory + 1000) == kErrorInvalidValue);
  std::vector<char> host(4096);
  const CUdeviceptr address = device_address(host.data());
  CHECK(cu().pointer_attribute(&type, kPointerMemoryType, address) == kErrorInvalidValue);
  CUpointer_attribute wanted[] = {kPointerMemoryType};
  void* values[] = {&type};
  OK(cu().pointer_attributes(1, wanted, values, address));
  CHECK(type == 0);
  OK(cu().host_register(host.data(), host.size(), kHostRegisterPortable));
  CHECK(cu().host_register(host.data() + 10, 1, 0) == kErrorHostMemoryAlreadyRegistered);
  OK(cu().pointer_attribute(&type, kPointerMemoryType, address + 4095));
  CHECK(type == kMemoryTypeHost);
  CUdeviceptr mapped = 0;
  OK(cu().host_device_pointer(&mapped, host.data(), 0));
  CHECK(mapped == address);
  OK(cu().host_unregister(host.data()));
  CHECK(cu().host_unregister(host.data()) == kErrorHostMemoryNotRegistered);
  CHECK(cu().memset_async(memory, 0, 1001, nullptr) == kErrorInvalidValue);
  CHECK(cu().write_value64(nullptr, address, 1, 0) == kErrorInvalidValue);
  CHECK(cu().write_value64(nullptr, memory + 4, 1, 0) == kErrorInvalidValue);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  OK(cu().mem_address_range(&base, &bytes, memory + 5));
  CHECK((base == memory && bytes == 1000));
  OK(cu().mem_free(memory));
}

TEST_CASE("events order streams; recording anew does not touch earlier waits") {
  Device device;
  Stream first, second;
  Event event, end;
  Words words(2);
  std::vector<int> order;
  CHECK(cu().event_query(event) == kSuccess);  // never recorded
  OK(cu().wait_value64(first, words.at(0), 1, kWaitValueEq));
  OK(launch_append(first, order, 1));
  OK(cu().event_record(event, first));
  OK(cu().stream_wait_event(second, event, 0));
  OK(launch_append(second, order, 2));
  OK(cu().event_record(end, second));
  OK(cu().wait_value64(first, words.at(1), 1, kWaitValueEq));
  OK(cu().event_record(event, first));  // `second` waits for the recording before this one
  CHECK(cu().event_query(end) == kErrorNotReady);
  float ms = -1;
  CHECK(cu().event_elapsed_time(&ms, event, end) == kErrorNotReady);
  words[0] = 1;
  OK(cu().event_synchronize(end));
  CHECK(cu().event_query(event) == kErrorNotReady);
  CHECK(order == std::vector<int>{1, 2});
  words[1] = 1;
  OK(cu().event_synchronize(event));
  OK(cu().event_elapsed_time(&ms, end, event));
  CHECK(ms >= 0);
}

TEST_CASE("the four conditions of a wait") {
  Device device;
  Stream stream;
  Words words(1);
  struct Case {
    unsigned flags;
    std::uint32_t before, value, after;
  };
  const Case cases[] = {
      {kWaitValueGeq, 4, 5, 6},
      {kWaitValueGeq, 0xFFFFFFF0u, 0xFFFFFFFFu, 3},  // wraps
      {kWaitValueEq, 6, 5, 5},
      {kWaitValueAnd | kWaitValueFlush, 0b100, 0b011, 0b110},
      {kWaitValueNor, 0xFFFF0000u, 0x0000FFFFu, 0x7FFF0000u},
  };
  for (const Case& c : cases) {
    auto* raw = static_cast<std::uint32_t*>(words.memory);
    std::atomic_ref<std::uint32_t> word(*raw);
    word = c.before;
    OK(cu().wait_value32(stream, words.at(0), c.value, c.flags));
    sleep_ms(3);
    CHECK(cu().stream_query(stream) == kErrorNotReady);
    word = c.after;
    OK(cu().stream_synchronize(stream));
  }
  CHECK(cu().wait_value32(stream, words.at(0), 0, 4) == kErrorInvalidValue);
}

TEST_CASE("replays see the arguments of the capture, and graphs nest") {
  Device device;
  Stream stream;
  std::vector<int> order;
  CUgraph graph = nullptr, outer = nullptr;
  CUgraphExec exec = nullptr, outer_exec = nullptr;
  OK(cu().capture_begin(stream, kCaptureThreadLocal));
  OK(launch_append(stream, order, 1));
  OK(launch_append(stream, order, 2));
  OK(cu().capture_end(stream, &graph));
  OK(cu().graph_instantiate(&exec, graph, 0));
  OK(cu().capture_begin(stream, kCaptureRelaxed));
  OK(cu().graph_launch(exec, stream));
  OK(launch_append(stream, order, 3));
  OK(cu().capture_end(stream, &outer));
  OK(cu().graph_instantiate(&outer_exec, outer, 0));
  OK(cu().graph_launch(outer_exec, stream));
  OK(cu().graph_launch(outer_exec, stream));
  OK(cu().stream_synchronize(stream));
  CHECK(order == std::vector<int>{1, 2, 3, 1, 2, 3});
  OK(cu().graph_exec_destroy(exec));
  OK(cu().graph_exec_destroy(outer_exec));
  OK(cu().graph_destroy(graph));
  OK(cu().graph_destroy(outer));
}

TEST_CASE("external events are recorded by the graph") {
  Device device;
  Stream stream;
  Event event;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CHECK(cu().event_record_flags(event, stream, kEventRecordExternal) == kErrorInvalidValue);
  OK(cu().capture_begin(stream, kCaptureRelaxed));
  OK(cu().event_record_flags(event, stream, kEventRecordExternal));
  OK(cu().capture_end(stream, &graph));
  OK(cu().graph_instantiate(&exec, graph, 0));
  float ms = 0;
  CHECK(cu().event_elapsed_time(&ms, event, event) == kErrorInvalidHandle);  // not recorded yet
  OK(cu().graph_launch(exec, stream));
  OK(cu().stream_synchronize(stream));
  OK(cu().event_elapsed_time(&ms, event, event));
  OK(cu().graph_exec_destroy(exec));
  OK(cu().graph_destroy(graph));
}
