// What a communicator has ready for its first call on a stream, which may find the stream waiting.
#include <algorithm>
#include <array>

#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

constexpr std::size_t elements = std::size_t{1} << 18;  // 1 MiB

// Two ranks of this thread, made from an id.
struct Joined {
  Joined() {
    pithUniqueId id;
    REQUIRE(pithGetUniqueId(&id) == pithSuccess);
    REQUIRE(pithGroupStart() == pithSuccess);
    for (int r = 0; r < 2; ++r) {
      REQUIRE(pithCommInitRank(&comms.at(static_cast<std::size_t>(r)), 2, id, r) == pithSuccess);
    }
    REQUIRE(pithGroupEnd() == pithSuccess);
  }
  explicit Joined(const Joined& parent) {
    REQUIRE(pithGroupStart() == pithSuccess);
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(pithCommSplit(parent.comms[r], 0, static_cast<int>(r), &comms[r], nullptr) ==
              pithSuccess);
    }
    REQUIRE(pithGroupEnd() == pithSuccess);
  }
  ~Joined() {
    for (const pithComm_t comm : comms) pithCommDestroy(comm);
  }
  std::array<pithComm_t, 2> comms{};
};

struct Vector {
  explicit Vector(std::uint32_t value) : memory(4 * elements) {
    std::fill_n(memory.as<std::uint32_t>(), elements, value);
  }
  bool holds(std::uint32_t value) const {
    const auto* const data = memory.as<std::uint32_t>();
    return std::count(data, data + elements, value) == static_cast<std::ptrdiff_t>(elements);
  }
  DeviceMemory memory;
};

pithResult_t sum_up(pithComm_t comm, const Vector& vector, CUstream stream) {
  return pithAllReduce(vector.memory.as<void>(), vector.memory.as<void>(), elements, pithUint32,
                       pithSum, comm, stream);
}

// Both ranks' streams wait for nothing but their call.
void sum_up(const Joined& joined, const std::array<Vector, 2>& vectors,
            const std::array<Stream, 2>& streams, const Words& passed) {
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(sum_up(joined.comms[r], vectors[r], streams[r]) == pithSuccess);
  }
  for (std::size_t r = 0; r < 2; ++r) OK(cu().write_value64(streams[r], passed.at(r), 1, 0));
  for (std::size_t r = 0; r < 2; ++r) {
    while (passed[r].load(std::memory_order_acquire) != 1) std::this_thread::yield();
    CHECK(vectors[r].holds(3));
  }
}

}  // namespace

TEST_CASE("the first call of a communicator loads and allocates nothing") {
  const test::Device device;
  const bool split = GENERATE(false, true);
  INFO((split ? "of a split" : "of an id"));
  const std::array<Vector, 2> vectors{Vector(1), Vector(2)};
  const std::array<Stream, 2> streams;
  const Words passed(2);
  const Joined joined;
  std::unique_ptr<Joined> child;
  if (split) child = std::make_unique<Joined>(joined);
  pithStubReset();
  sum_up(split ? *child : joined, vectors, streams, passed);
  CHECK(counters().allocs == 0);
  CHECK(counters().syncs == 0);
}

TEST_CASE("nothing is made for streams where the thread has no context") {
  const test::Device device;
  OK(cu().ctx_set_current(nullptr));
  const Joined joined;
  CHECK(counters().allocs == 0);
}

TEST_CASE("what is prepared for one device does not bind a communicator to it") {
  const test::Device device;
  const Joined joined;
  CUcontext second = nullptr;
  OK(cu().primary_ctx_retain(&second, 1));
  OK(cu().ctx_set_current(second));
  {
    const std::array<Vector, 2> vectors{Vector(1), Vector(2)};
    const std::array<Stream, 2> streams;
    const Words passed(2);
    sum_up(joined, vectors, streams, passed);
  }
  OK(cu().ctx_set_current(device.context));
}

TEST_CASE("a device that has failed is told of by the first call on it") {
  const test::Device device;
  const Vector vector(1);
  const Stream stream;
  const Words words(1);
  pithStubFailAfter(0);
  OK(cu().write_value64(stream, words.at(0), 1, 0));
  while (pithStubIsArmed()) std::this_thread::yield();
  {
    const Joined joined;
    std::array<std::uint32_t, 2> host{1, 2};
    REQUIRE(pithGroupStart() == pithSuccess);
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(pithAllReduce(&host.at(r), &host.at(r), 1, pithUint32, pithSum, joined.comms[r],
                            nullptr) == pithSuccess);
    }
    CHECK(pithGroupEnd() == pithSuccess);
    CHECK(host == std::array<std::uint32_t, 2>{3, 3});
    CHECK(sum_up(joined.comms[0], vector, stream) == pithUnhandledCudaError);
  }
  pithStubReset();
}
