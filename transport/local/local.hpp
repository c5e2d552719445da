// Ranks that are threads of one process. Messages go through rings in ordinary memory, and any host
// memory of one rank can be accessed by every other one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/ring_transport.hpp"

namespace pith {

// What the ranks share. Everything exists from the beginning, so that ranks need not wait for each
// other to attach; pages are touched when they are first used.
class LocalHub {
 public:
  static Expected<std::shared_ptr<LocalHub>> create(int ranks, const RingShape& shape = {});
  ~LocalHub();
  LocalHub(const LocalHub&) = delete;
  LocalHub& operator=(const LocalHub&) = delete;

  int ranks() const { return ranks_; }
  const RingShape& shape() const { return shape_; }

 private:
  friend class LocalTransport;
  LocalHub(int ranks, const RingShape& shape) : ranks_(ranks), shape_(shape) {}

  std::byte* ring(int from, int to) const {
    const auto ranks = static_cast<std::size_t>(ranks_);
    const auto index = static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to);
    return memory_ + index * shape_.bytes();
  }
  RingSleep* sleep(int rank) { return &sleep_[static_cast<std::size_t>(rank)]; }
  int doorbell(int rank) const { return doorbells_[static_cast<std::size_t>(rank)]; }

  const int ranks_;
  const RingShape shape_;
  std::byte* memory_ = nullptr;
  std::size_t memory_bytes_ = 0;
  std::vector<RingSleep> sleep_;
  std::vector<int> doorbells_;
};

class LocalTransport final : public RingTransport {
 public:
  LocalTransport(Scheduler& scheduler, Mailbox& mailbox, int rank, std::shared_ptr<LocalHub> hub);

  // Nothing to do: ranks share the hub from the beginning, and end together.
  Expected<std::string> listen() override { return std::string(); }
  Error connect(std::span<const std::string>, std::span<const std::uint8_t>,
                const Patience&) override {
    return {};
  }
  void close(std::uint64_t) override {}

  std::string_view name() const override { return "local"; }
  MemoryHandle expose(int peer, Bytes memory) override;
  std::byte* map(int peer, MemoryHandle handle) override;
  int descriptor() const override { return hub_->doorbell(rank_); }

 private:
  const int rank_;
  const std::shared_ptr<LocalHub> hub_;
};

}  // namespace pith
