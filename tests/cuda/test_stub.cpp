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
