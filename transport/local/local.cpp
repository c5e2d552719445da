#include "transport/local/local.hpp"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

namespace pith {

Expected<std::shared_ptr<LocalHub>> LocalHub::create(int ranks, const RingShape& shape) {
  std::shared_ptr<LocalHub> hub(new LocalHub(ranks, shape));
  const auto count = static_cast<std::size_t>(ranks);
  hub->sleep_ = std::vector<RingSleep>(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const int doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (doorbell < 0) return system_error("eventfd for a rank's doorbell", errno);
    hub->doorbells_.push_back(doorbell);
  }
  const std::size_t bytes = count * count * shape.bytes();
  // Zeroed, sparse and page-aligned; all zeros is a ring's initial state.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return system_error(fmt::format("{} bytes for the rings of {} ranks", bytes, ranks), errno);
  }
  hub->memory_ = static_cast<std::byte*>(memory);
  hub->memory_bytes_ = bytes;
  return hub;
}

LocalHub::~LocalHub() {
  if (memory_) munmap(memory_, memory_bytes_);
  for (const int doorbell : doorbells_) close(doorbell);
}

LocalTransport::LocalTransport(Scheduler& scheduler, Mailbox& mailbox, int rank,
                               std::shared_ptr<LocalHub> hub)
    : RingTransport(scheduler, mailbox, hub->ranks(), hub->shape()),
      rank_(rank),
      hub_(std::move(hub)) {
  set_own_sleep(hub_->sleep(rank), hub_->doorbell(rank));
  for (int peer = 0; peer < hub_->ranks(); ++peer) {
    if (peer == rank) continue;
    Link link;
    link.inbound = hub_->ring(peer, rank);
    link.outbound = hub_->ring(rank, peer);
    link.peer_sleep = hub_->sleep(peer);
    link.doorbell = hub_->doorbell(peer);
    join(peer, link);
  }
}

MemoryHandle LocalTransport::expose(int, Bytes memory) {
  if (memory.kind != MemoryKind::host) return {};
  return {reinterpret_cast<std::uint64_t>(memory.data), MemoryHandle::Reach::load_store};
}

std::byte* LocalTransport::map(int, MemoryHandle handle) {
  return reinterpret_cast<std::byte*>(handle.where);
}

}  // namespace pith
