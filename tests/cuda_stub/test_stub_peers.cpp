// The stub driver: device memory of other devices and of other processes.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/cuda_stub/fixture.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

constexpr std::size_t count = 5000;
constexpr const char* variable = "PITH_TEST_STUB_HANDLE";

std::string text_of(const CUipcMemHandle& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    text += static_cast<char>('a' + (static_cast<unsigned char>(byte) >> 4));
    text += static_cast<char>('a' + (static_cast<unsigned char>(byte) & 15));
  }
  return text;
}

CUipcMemHandle handle_of(const char* text) {
  CUipcMemHandle handle{};
  for (char& byte : handle.reserved) {
    byte = static_cast<char>((text[0] - 'a') << 4 | (text[1] - 'a'));
    text += 2;
  }
  return handle;
}

// This program again, with one of the hidden cases below; whether that went well.
bool other_process(const char* test_case, const CUipcMemHandle& handle) {
  setenv(variable, text_of(handle).c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "test_cuda_stub", test_case, nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Numbers {
  Numbers() {
    OK(cu().mem_alloc(&address, count * 4));
    for (std::size_t i = 0; i < count; ++i) at(i) = static_cast<std::uint32_t>(3 * i);
  }
  std::uint32_t& at(std::size_t i) const { return host_view<std::uint32_t>(address)[i]; }
  CUdeviceptr address = 0;
};

}  // namespace

TEST_CASE("in another process: the memory of a handle is read and written", "[.]") {
  const Device device;
  const CUipcMemHandle handle = handle_of(std::getenv(variable));
  CUdeviceptr address = 0;
  CUdeviceptr again = 0;
  CHECK(cu().ipc_open_handle(&address, handle, 0) == kErrorInvalidValue);
  OK(cu().ipc_open_handle(&address, handle, kIpcLazyPeerAccess));
  OK(cu().ipc_open_handle(&again, handle, kIpcLazyPeerAccess));
  CHECK(again == address);
  unsigned type = 0;
  OK(cu().pointer_attribute(&type, kPointerMemoryType, address + 4 * count - 1));
  CHECK(type == kMemoryTypeDevice);
  CHECK(cu().pointer_attribute(&type, kPointerMemoryType, address + 4 * count) != kSuccess);
  bool right = true;
  for (std::size_t i = 0; i < count; ++i) {
    right &= host_view<std::uint32_t>(address)[i] == 3 * i;
    host_view<std::uint32_t>(address)[i] += 1;
  }
  CHECK(right);
  CUipcMemHandle passed_on;
  CHECK(cu().ipc_get_handle(&passed_on, address) == kErrorInvalidValue);
  CHECK(cu().mem_free(address) == kErrorInvalidValue);
  OK(cu().ipc_close_handle(address));
  CHECK(host_view<std::uint32_t>(address)[1] == 4);  // opened twice
  OK(cu().ipc_close_handle(address));
  CHECK(cu().ipc_close_handle(address) == kErrorInvalidValue);
}

TEST_CASE("in another process: a handle is refused", "[.]") {
  const Device device;
  CUdeviceptr address = 0;
  CHECK(cu().ipc_open_handle(&address, handle_of(std::getenv(variable)), kIpcLazyPeerAccess) ==
        kErrorMapFailed);
}

TEST_CASE("another process reads and writes device memory") {
  const Device device;
  const Numbers numbers;
  CUipcMemHandle handle;
  OK(cu().ipc_get_handle(&handle, numbers.address + 8));  // names the whole allocation
  CUdeviceptr own = 0;
  CHECK(cu().ipc_open_handle(&own, handle, kIpcLazyPeerAccess) == kErrorInvalidContext);
  CHECK(other_process("in another process: the memory of a handle is read and written", handle));
  bool right = true;
  for (std::size_t i = 0; i < count; ++i) right &= numbers.at(i) == 3 * i + 1;
  CHECK(right);
  OK(cu().mem_free(numbers.address));
  CHECK(other_process("in another process: a handle is refused", handle));
}

TEST_CASE("memory that comes to a freed address has another handle") {
  const Device device;
  const Numbers first;
  CUipcMemHandle handle;
  OK(cu().ipc_get_handle(&handle, first.address));
  OK(cu().mem_free(first.address));
  const Numbers second;
  CHECK(second.address == first.address);
  CHECK(other_process("in another process: a handle is refused", handle));
  OK(cu().ipc_get_handle(&handle, second.address));
  CHECK(other_process("in another process: the memory of a handle is read and written", handle));
  OK(cu().mem_free(second.address));
}

TEST_CASE("only device memory has a handle") {
  const Device device;
  const Words pinned(4);
  CUipcMemHandle handle;
  CHECK(cu().ipc_get_handle(&handle, pinned.at(0)) == kErrorInvalidValue);
  CHECK(cu().ipc_get_handle(&handle, 4096) == kErrorInvalidValue);
  CHECK(cu().ipc_close_handle(pinned.at(0)) == kErrorInvalidValue);
}

TEST_CASE("devices reach each other when asked to") {
  const Device device;
  int can = -1;
  OK(cu().device_can_access_peer(&can, 0, 1));
  CHECK(can == 1);
  OK(cu().device_can_access_peer(&can, 0, 0));
  CHECK(can == 0);
  CHECK(cu().device_can_access_peer(&can, 0, 7) == kErrorInvalidDevice);
  CUcontext other = nullptr;
  OK(cu().primary_ctx_retain(&other, 1));
  CHECK(cu().ctx_enable_peer_access(other, 1) == kErrorInvalidValue);
  CHECK(cu().ctx_enable_peer_access(device.context, 0) == kErrorPeerAccessUnsupported);
  OK(cu().ctx_enable_peer_access(other, 0));
  CHECK(cu().ctx_enable_peer_access(other, 0) == kErrorPeerAccessAlreadyEnabled);
}

TEST_CASE("copies between device and host are counted") {
  const Device device;
  const Stream stream;
  const Numbers one;
  const Numbers other;
  const Words pinned(4);
  OK(cu().memcpy_async(one.address, other.address, 64, stream));
  StubCounters counters;
  pithStubCounters(&counters);
  CHECK(counters.host_copies == 0);
  OK(cu().memcpy_async(one.address, pinned.at(0), 32, stream));
  OK(cu().memcpy_async(pinned.at(0), one.address, 32, stream));
  OK(cu().stream_synchronize(stream));
  pithStubCounters(&counters);
  CHECK(counters.host_copies == 2);
  OK(cu().mem_free(one.address));
  OK(cu().mem_free(other.address));
}
