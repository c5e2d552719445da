// The compute seam on CUDA streams: fences, scratch, and the collectives' coroutines unchanged.
#include <numeric>

#include "collectives/algorithm.hpp"
#include "tests/cuda/device_world.hpp"

using namespace pith;
using namespace pith::cuda::test;
using cuda::Buddy;
using cuda::CudaCompute;

namespace {

struct SeenWait : FenceWait {
  explicit SeenWait(Fence f) {
    fence = f;
    FenceWait::reached = [](FenceWait& wait) { static_cast<SeenWait&>(wait).seen = true; };
  }
  bool seen = false;
};

template <class Done>
void progress_until(CudaCompute& compute, Done done) {
  while (!done()) {
    compute.progress();
    std::this_thread::yield();
  }
}

cuda::StubCounters counters() {
  cuda::StubCounters now;
  cuda::pithStubCounters(&now);
  return now;
}

}  // namespace

TEST_CASE("a kernel runs on the stream and its fence follows it") {
  const Device device;
  DeviceWorld world(1);
  CudaCompute& compute = *world[0].compute;
  const DeviceMemory a(4096);
  const DeviceMemory b(4096);
  std::iota(a.as<std::uint32_t>(), a.as<std::uint32_t>() + 1024, 5u);

  CHECK(compute.reached({}));
  compute.run<CopyKernel>({b.as<std::byte>(), a.as<std::byte>(), 4096});
  const Fence fence = compute.run<ReduceKernel>(
      {b.as<std::byte>(), b.as<std::byte>(), a.as<std::byte>(), 1024, DType::u32, Op::sum, false});
  SeenWait wait(fence);
  compute.notify(wait);
  CHECK(compute.busy());
  progress_until(compute, [&] { return wait.seen; });
  CHECK(compute.reached(fence));
  CHECK_FALSE(compute.busy());
  for (std::uint32_t i = 0; i < 1024; ++i) REQUIRE(b.as<std::uint32_t>()[i] == 2 * (i + 5));
}

TEST_CASE("waits fire once their own fence is reached, whatever the order they came in") {
  const Device device;
  DeviceWorld world(1);
  CudaCompute& compute = *world[0].compute;
  const DeviceMemory a(64);
  const Fence first = compute.run<CopyKernel>({a.as<std::byte>(), a.as<std::byte>() + 32, 32});
  const Fence second = compute.run<CopyKernel>({a.as<std::byte>(), a.as<std::byte>() + 32, 32});
  SeenWait late(second);
  SeenWait early(first);
  compute.notify(late);
  compute.notify(early);
  progress_until(compute, [&] { return late.seen && early.seen; });
  CHECK_FALSE(compute.busy());
}

TEST_CASE("a kernel that the driver refuses ends in an error, and no fence waits for ever") {
  const Device device;
  DeviceWorld world(1);
  CudaCompute& compute = *world[0].compute;
  const Fence refused = compute.run<CopyKernel>({nullptr, nullptr, 8});
  progress_until(compute, [&] { return compute.reached(refused); });
  CHECK(compute.error().code() == Code::cuda);
}

TEST_CASE("the buddy system joins what is given back") {
  Buddy buddy(4);
  CHECK(buddy.take(5) == Buddy::none);
  std::vector<std::size_t> leaves;
  for (int i = 0; i < 16; ++i) leaves.push_back(buddy.take(0));
  std::sort(leaves.begin(), leaves.end());
  for (std::size_t i = 0; i < 16; ++i) CHECK(leaves[i] == i);
  CHECK(buddy.take(0) == Buddy::none);
  buddy.give(5, 0);
  CHECK(buddy.take(1) == Buddy::none);
  buddy.give(4, 0);
  CHECK(buddy.take(1) == 4);
  buddy.give(4, 1);
  for (std::size_t i = 0; i < 16; ++i) {
    if (i != 4 && i != 5) buddy.give(i, 0);
  }
  CHECK(buddy.take(4) == 0);
}

// More saturate no link, and of the highest priority they would starve what the user runs beside.
TEST_CASE(
    "a reduction of several ranks' vectors takes few blocks, one of a rank's own all it can") {
  const Device device;
  const Stream stream;
  const auto found = cuda::Device::of_stream(stream);
  REQUIRE(found);
  constexpr unsigned most_shared = 3;
  Expected<std::unique_ptr<CudaCompute>> made = CudaCompute::create(**found, 0, most_shared);
  REQUIRE(made);
  CudaCompute& compute = **made;
  constexpr std::size_t count = 1 << 20;
  const DeviceMemory a(count * 4);
  const DeviceMemory b(count * 4);
  const auto grid_of = [&](Fence fence) {
    compute.wait(fence);
    return counters().largest_grid;
  };
  ReduceManyKernel::Args args{};
  args.count = count;
  args.type = DType::f32;
  args.inputs = 2;
  args.outputs = 1;
  args.in = {a.as<std::byte>(), b.as<std::byte>()};
  args.out = {a.as<std::byte>()};
  cuda::pithStubReset();
  CHECK(grid_of(compute.run<ReduceManyKernel>(args)) == most_shared);
  CHECK(grid_of(compute.run<ReduceKernel>({a.as<std::byte>(), a.as<std::byte>(), b.as<std::byte>(),
                                           count, DType::f32, Op::sum})) > most_shared);
}
