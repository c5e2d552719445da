// Which memory an address is in: only what the driver does not know is the host's.
#include "core/log.hpp"
#include "cuda/peer_access.hpp"
#include "tests/cuda/said_during.hpp"
#include "tests/cuda/stream_world.hpp"

using namespace pith;
using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

CUresult answer = kSuccess;
CUresult answer_of(void* value, CUpointer_attribute, CUdeviceptr) {
  if (answer == kSuccess) *static_cast<unsigned*>(value) = kMemoryTypeDevice;
  return answer;
}

// Of host memory: its address on devices, or why there is none.
CUdeviceptr address_on_device = 0;
CUresult answer_of_host(void* value, CUpointer_attribute attribute, CUdeviceptr) {
  if (attribute == kPointerMemoryType) {
    *static_cast<unsigned*>(value) = kMemoryTypeHost;
    return kSuccess;
  }
  if (answer == kSuccess) *static_cast<CUdeviceptr*>(value) = address_on_device;
  return answer;
}

Expected<Where> where_if(CUresult result) {
  Driver driver = cu();
  driver.pointer_attribute = answer_of;
  answer = result;
  return where_is(driver, &answer);
}

}  // namespace

TEST_CASE("an address that the driver says nothing about is no host memory") {
  CHECK(*where_if(kSuccess) == Where::device);
  for (const CUresult result : {kErrorInvalidValue, kErrorNotInitialized, kErrorDeinitialized}) {
    const Expected<Where> where = where_if(result);
    CHECK((where && *where == Where::pageable));
  }
  for (const CUresult result : {kErrorInvalidContext, kErrorLaunchFailed, kErrorNotPermitted}) {
    const Expected<Where> where = where_if(result);
    REQUIRE_FALSE(where);
    CHECK(where.error().code() == Code::cuda);
    CHECK(std::string(where.error().message()).find("cuPointerGetAttribute") != std::string::npos);
  }
}

TEST_CASE("host memory that kernels cannot reach at its own address counts as pageable") {
  const test::Device device;
  Driver driver = cu();
  driver.pointer_attribute = answer_of_host;
  answer = kSuccess;
  address_on_device = address_of(&answer);
  CHECK(*where_is(driver, &answer) == Where::pinned);
  address_on_device += 4096;
  CHECK(*where_is(driver, &answer) == Where::pageable);
  answer = kErrorInvalidValue;
  CHECK(*where_is(driver, &answer) == Where::pageable);
  answer = kErrorInvalidContext;
  CHECK(*where_is(driver, &answer) == Where::pinned);
}

TEST_CASE("a thread without a context makes calls, whatever the driver wants for an answer") {
  const test::Device device;
  World world(2);
  std::vector<std::vector<std::uint32_t>> plain{{1, 2, 3}, {10, 20, 30}};
  for (std::size_t r = 0; r < 2; ++r) fill(world.ranks[r]->send, r, 1);
  // A context is known from here on: threads without one may ask in it.
  REQUIRE(pithBarrier(world.ranks[0]->comm, world.ranks[0]->other.handle) == pithSuccess);
  REQUIRE(pithBarrier(world.ranks[1]->comm, world.ranks[1]->other.handle) == pithSuccess);
  pithStubNeedContext(true);
  std::vector<pithResult_t> results;
  std::thread([&] {
    for (const auto& rank : world.ranks) {
      results.push_back(allreduce(*rank, rank->send, rank->recv, rank->stream));
    }
    results.push_back(pithGroupStart());
    for (std::size_t r = 0; r < 2; ++r) {
      results.push_back(pithAllReduce(plain[r].data(), plain[r].data(), 3, pithUint32, pithSum,
                                      world.ranks[r]->comm, nullptr));
    }
    results.push_back(pithGroupEnd());
  }).join();
  pithStubNeedContext(false);
  world.finish();
  for (const pithResult_t result : results) CHECK(result == pithSuccess);
  for (const auto& rank : world.ranks) CHECK(holds_sum(rank->recv, 2, 1));
  CHECK(plain[0] == std::vector<std::uint32_t>{11, 22, 33});
}

TEST_CASE("peers are offered memory by a thread without a context, too") {
  const test::Device device;
  const Stream stream;
  const DeviceMemory memory(64);
  PeerAccess views(**pith::cuda::Device::of_stream(stream), {false, true});
  const Bytes whole{memory.as<std::byte>(), 64, MemoryKind::cuda};
  pithStubNeedContext(true);
  std::uint64_t word_elsewhere = 0;
  std::thread([&] { word_elsewhere = views.identify(whole); }).join();
  pithStubNeedContext(false);
  CHECK(word_elsewhere != 0);
  CHECK(views.identify(whole) == word_elsewhere);
}

namespace {

// Of the device; the test frees it.
Bytes allocate_page() {
  CUdeviceptr address = 0;
  OK(cu().mem_alloc(&address, 4096));
  return {reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address)), 4096,
          MemoryKind::cuda};
}

}  // namespace

TEST_CASE("memory is what it was when a call that has not ended looked at it") {
  const test::Device device;
  const Stream stream;
  PeerAccess views(**pith::cuda::Device::of_stream(stream), {false, true});
  const Bytes whole = allocate_page();
  const std::uint32_t one = views.look_at(whole.part(1024, 1024));
  const std::uint32_t other = views.look_at(whole);
  const std::uint64_t word = views.identify(whole);
  REQUIRE(word != 0);
  CHECK(views.identify(whole.part(1024, 1024)) == word + 1024);
  OK(cu().mem_free(address_of(whole.data)));
  views.let_go(one);
  CHECK(views.identify(whole) == word);  // for the length of a call, no driver is asked
  views.let_go(other);
  CHECK(views.identify(whole) == 0);
}

TEST_CASE("memory that no call has looked at is asked for, whatever was there before") {
  const test::Device device;
  const Stream stream;
  PeerAccess views(**pith::cuda::Device::of_stream(stream), {false, true});
  const Bytes page = allocate_page();
  views.let_go(views.look_at(page));
  const std::uint64_t word = views.identify(page);
  OK(cu().mem_free(address_of(page.data)));
  REQUIRE(allocate_page().data == page.data);
  CHECK(views.identify(page) != 0);
  CHECK(views.identify(page) != word);
  OK(cu().mem_free(address_of(page.data)));
}

// Peers of other processes cannot map it, which is no secret, but not worth a line each time.
TEST_CASE("that memory is staged is said once, at level info") {
  const test::Device device;
  const Stream stream;
  PeerAccess views(**pith::cuda::Device::of_stream(stream), {false, true});
  const bool of_pool = GENERATE(false, true);
  CUdeviceptr address = 0;
  constexpr std::size_t bytes = std::size_t{2} << 20;
  if (of_pool) {
    OK(cu().mem_alloc_async(&address, bytes, stream));
  } else {
    CUmemAllocationProp prop{};
    prop.type = kMemoryPinned;
    prop.location = {kLocationDevice, 0};
    const CUmemAccessDesc access{prop.location, kAccessReadWrite};
    CUmemGenericAllocationHandle handle = 0;
    OK(cu().mem_create(&handle, bytes, &prop, 0));
    OK(cu().mem_reserve(&address, bytes, 0, 0, 0));
    OK(cu().mem_map(address, bytes, 0, handle, 0));
    OK(cu().mem_release(handle));
    OK(cu().mem_set_access(address, bytes, &access, 1));
  }
  const Bytes whole{host_view<std::byte>(address), bytes, MemoryKind::cuda};
  const auto said = [&](const char* level) {
    set_log_level(level);
    std::string text = said_during([&] { CHECK(views.identify(whole) != 0); });
    set_log_level("warn");
    return text;
  };
  const std::string text = said("info");
  CAPTURE(text);
  CHECK(text.find(of_pool ? "a memory pool's" : "handle type") != std::string::npos);
  CHECK(said("info").empty());
  if (of_pool) {
    OK(cu().mem_free_async(address, stream));
  } else {
    OK(cu().mem_unmap(address, bytes));
    OK(cu().mem_unreserve(address, bytes));
  }
}
