#include <cstring>

#include "core/compute.hpp"
#include "core/kernel_args.hpp"
#include "tests/catch.hpp"
#include "tests/core/operations.hpp"

namespace pith::test {

namespace {

void run_copy(const CopyKernel::Args& args) { std::memcpy(args.out, args.in, args.bytes); }

// A queue whose fences are reached when the test says so.
class ManualCompute : public Compute {
 public:
  ManualCompute() { set<CopyKernel, run_copy>(); }
  explicit ManualCompute(const Compute* other) { adopt_kernels(*other); }

  MemoryKind kind() const override { return MemoryKind::host; }
  bool reached(Fence fence) const override { return fence.ticket <= done; }
  void notify(FenceWait& wait) override { waits.push_back(&wait); }
  bool progress() override {
    bool any = false;
    for (FenceWait* wait : std::exchange(waits, {})) {
      if (reached(wait->fence)) {
        wait->reached(*wait);
        any = true;
      } else {
        waits.push_back(wait);
      }
    }
    return any;
  }
  std::byte* take_scratch(std::size_t bytes) override {
    ++taken;
    return new std::byte[bytes];
  }
  void give_scratch(std::byte* scratch, std::size_t) override {
    --taken;
    delete[] scratch;
  }

  std::uint64_t done = 0;
  std::uint64_t last = 0;
  std::size_t work = 0;
  int taken = 0;
  std::vector<FenceWait*> waits;

 protected:
  Fence submit(Implementation implementation, const void* args, std::size_t args_bytes,
               std::size_t work_bytes, Fence) override {
    CHECK(args_bytes == sizeof(CopyKernel::Args));
    work += work_bytes;
    implementation(args);
    return {++last};
  }
};

}  // namespace

TEST_CASE("a kernel is found by its type, also by who adopts the table", "[compute]") {
  ManualCompute compute;
  ManualCompute wrapper(&compute);
  int from = 42;
  int to = 0;
  const Fence fence = wrapper.run<CopyKernel>(
      {reinterpret_cast<std::byte*>(&to), reinterpret_cast<const std::byte*>(&from), sizeof to});
  CHECK(to == 42);
  CHECK(!wrapper.reached(fence));
  CHECK(wrapper.reached(Fence{}));
}

TEST_CASE("scratch lives as long as its scope", "[compute]") {
  ManualCompute compute;
  {
    Scratch first(compute, 100);
    std::byte* data = first.bytes().data;
    Scratch second = std::move(first);
    CHECK(second.bytes().data == data);
    CHECK(compute.taken == 1);
    second = Scratch(compute, 50);
    CHECK(compute.taken == 1);
    CHECK(second.bytes().size == 50);
  }
  CHECK(compute.taken == 0);
}

TEST_CASE("what kernels read is let go of at their fence", "[compute]") {
  ManualCompute compute;
  Slots slots;
  for (std::uint64_t round = 1; round < 4; ++round) {
    compute.retire(Lease(nullptr, 0, &slots, 5, round), Scratch(compute, 64), Fence{round});
    CHECK(slots.released.size() == round - 1);
    CHECK(compute.taken == 1);
    compute.done = round;
    CHECK(compute.progress());
    CHECK(slots.released.back() == round);
    CHECK(slots.released_peer == 5);
    CHECK(compute.taken == 0);
  }
  compute.retire(Lease(nullptr, 0, &slots, 5, 9), Scratch(compute, 64), Fence{1});
  CHECK(slots.released.back() == 9);
  CHECK(compute.taken == 0);
}

}  // namespace pith::test
