#include <utility>
#include <vector>

#include "core/compute.hpp"
#include "tests/catch.hpp"
#include "tests/core/operations.hpp"

namespace pith::test {

namespace {

// A queue whose fences are reached when the test says so.
class ManualCompute : public Compute {
 public:
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
  int taken = 0;
  std::vector<FenceWait*> waits;

 protected:
  Fence submit(Implementation, const void*, std::size_t, std::size_t, Fence) override { return {}; }
};

}  // namespace

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
