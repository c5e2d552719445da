// Which memory an address is in: only what the driver does not know is the host's.
#include "cuda/peer_access.hpp"
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
