// A device whose scratch network hardware reaches: the host's memory, counted.
#pragma once

#include <cstddef>
#include <memory>

#include "core/compute.hpp"

namespace pith::test {

class NetworkCompute final : public Compute {
 public:
  MemoryKind kind() const override { return MemoryKind::cuda; }
  bool reached(Fence) const override { return true; }
  void notify(FenceWait& wait) override { wait.reached(wait); }
  bool progress() override { return false; }
  std::byte* take_scratch(std::size_t bytes) override {
    ++out;
    return new std::byte[bytes]{};
  }
  void give_scratch(std::byte* scratch, std::size_t) override {
    --out;
    delete[] scratch;
  }
  std::uint64_t network_memory() const override { return 7; }
  std::shared_ptr<void> withhold_scratch(std::byte* scratch, std::size_t) override {
    --out;
    ++withheld;
    return {scratch, [this](std::byte* memory) {
              --withheld;
              delete[] memory;
            }};
  }

  int out = 0;
  int withheld = 0;

 protected:
  Fence submit(Implementation, const void*, std::size_t, std::size_t, Fence) override { return {}; }
};

}  // namespace pith::test
