// A device whose scratch network hardware reaches: the host's memory, counted.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/compute.hpp"

namespace pith::test {

class NetworkCompute final : public Compute, public MemoryExporter {
 public:
  // `memory`: its id for the network; 0: which does not reach it.
  explicit NetworkCompute(std::uint64_t memory = 7) : memory_(memory) {}

  MemoryKind kind() const override { return MemoryKind::cuda; }
  bool reached(Fence) const override { return true; }
  void notify(FenceWait& wait) override { wait.reached(wait); }
  bool progress() override { return false; }
  std::byte* take_scratch(std::size_t bytes) override {
    ++out;
    auto* const scratch = new std::byte[bytes]{};
    sizes_[scratch] = bytes;
    return scratch;
  }
  void give_scratch(std::byte* scratch, std::size_t bytes) override {
    --out;
    std::memset(scratch, given_value, bytes);
    given_.emplace_back(scratch, bytes);
  }
  std::uint64_t network_memory() const override { return memory_; }
  std::shared_ptr<void> withhold_scratch(std::byte* scratch, std::size_t) override {
    --out;
    ++withheld;
    return {scratch, [this](std::byte* memory) {
              --withheld;
              delete[] memory;
            }};
  }

  MemoryExporter* exporter() override { return exports ? this : nullptr; }
  ExportedMemory export_memory(const std::byte* at) override {
    return {open("/dev/null", O_RDONLY | O_CLOEXEC), at, sizes_.at(at)};
  }

  // Whether nobody has written to scratch since it was given back.
  bool is_left_alone() const {
    return std::ranges::all_of(given_, [](const Given& given) {
      const auto* at = given.first.get();
      return std::all_of(at, at + given.second,
                         [](std::byte byte) { return byte == std::byte{given_value}; });
    });
  }

  bool exports = true;
  int out = 0;
  int withheld = 0;

 protected:
  Fence submit(Implementation, const void*, std::size_t, std::size_t, Fence) override { return {}; }

 private:
  static constexpr unsigned char given_value = 7;
  using Given = std::pair<std::unique_ptr<std::byte[]>, std::size_t>;

  const std::uint64_t memory_;
  std::map<const std::byte*, std::size_t> sizes_;  // of all scratch that ever was
  std::vector<Given> given_;
};

}  // namespace pith::test
