#include "cuda/imported.hpp"

#include <fmt/format.h>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "cuda/helper_thread.hpp"

namespace pith::cuda {

struct Imported::Mapping {
  Mapping(Device& on, std::size_t size) : device(on), bytes(size) {}
  virtual ~Mapping() = default;
  Mapping(const Mapping&) = delete;

  // Both run on the helper thread. attempt() returns `pending` where a later attempt may succeed.
  virtual Reach attempt() = 0;
  virtual void close() = 0;
  Reach refuse(CUresult result) const;

  Device& device;
  const std::size_t bytes;
  CUdeviceptr address = 0;  // valid once open
  std::uint64_t tried_ns = 0;
  std::atomic<bool> trying{false};
  std::atomic<Reach> reach{Reach::pending};
};

Reach Imported::Mapping::refuse(CUresult result) const {
  log(LogLevel::info,
      fmt::format("device memory of another process is copied by way of the host, for it cannot "
                  "be mapped: {}",
                  device.driver().describe(result)),
      LogTopic::p2p);
  return Reach::refused;
}

struct Imported::ByHandle final : Mapping {
  ByHandle(Device& on, const CUipcMemHandle& of, std::size_t size)
      : Mapping(on, size), handle(of) {}

  // "Already mapped" is temporary: the memory was opened through another handle, of freed memory or
  // by other code in this process, and is closed at some time. Sharing that mapping is impossible,
  // for the driver does not tell the memory's offset in the common block.
  Reach attempt() override {
    const CUresult result = device.driver().ipc_open_handle(&address, handle, kIpcLazyPeerAccess);
    if (result == kErrorAlreadyMapped) return Reach::pending;
    return result == kSuccess ? Reach::open : refuse(result);
  }
  void close() override {
    if (reach.load(std::memory_order_acquire) == Reach::open) {
      device.driver().ipc_close_handle(address);
    }
  }

  const CUipcMemHandle handle;
};

struct Imported::ByDescriptors final : Mapping {
  ByDescriptors(Device& on, std::shared_ptr<DescriptorSocket> at, const DescriptorSocket::Key& of,
                std::size_t size)
      : Mapping(on, size), socket(std::move(at)), key(of), range(on.driver()) {}

  Reach attempt() override {
    const std::vector<MemoryPart> parts = socket->take(key);
    if (parts.empty()) return Reach::pending;
    std::size_t found = 0;
    for (const MemoryPart& part : parts) found += part.bytes;
    const CUresult result = found == bytes
                                ? import_parts(device.driver(), parts, device.ordinal(), range)
                                : kErrorInvalidValue;
    address = range.base();
    return result == kSuccess ? Reach::open : refuse(result);
  }
  void close() override {
    socket->expect_no_more(key);
    const MappedRange ended = std::move(range);
  }

  const std::shared_ptr<DescriptorSocket> socket;
  const DescriptorSocket::Key key;
  std::uint64_t asked_ns = 0;
  MappedRange range;
};

Imported::Imported(Device& device, const CUipcMemHandle& handle, std::size_t bytes)
    : mapping_(std::make_shared<ByHandle>(device, handle, bytes)) {
  try_again();
}

Imported::Imported(Device& device, std::shared_ptr<DescriptorSocket> socket,
                   const DescriptorSocket::Key& key, std::size_t parts, std::size_t bytes) {
  socket->expect(key, parts);
  mapping_ = std::make_shared<ByDescriptors>(device, std::move(socket), key, bytes);
}

Imported::~Imported() {
  if (!mapping_) return;
  run_on_helper_thread([mapping = mapping_] {
    const Current current(mapping->device);
    const RelaxedCapture relaxed(mapping->device.driver());
    mapping->close();
  });
}

Reach Imported::reach() const { return mapping_->reach.load(std::memory_order_acquire); }

// Limited in rate: repeated descriptors stay in the socket's queue, and keep the memory alive,
// until they are read.
bool Imported::asks_for_descriptors() {
  constexpr std::uint64_t pause_ns = 100'000'000;
  auto* const waits = dynamic_cast<ByDescriptors*>(mapping_.get());
  const std::uint64_t now = monotonic_ns();
  const bool early = waits && waits->asked_ns != 0 && now - waits->asked_ns < pause_ns;
  if (!waits || early || reach() != Reach::pending) return false;
  waits->asked_ns = now;
  return true;
}

// Every call asks; the pause limits the load on the driver.
void Imported::try_again() {
  constexpr std::uint64_t pause_ns = 5'000'000;
  const std::uint64_t now = monotonic_ns();
  const bool early = mapping_->tried_ns != 0 && now - mapping_->tried_ns < pause_ns;
  if (reach() != Reach::pending || early || mapping_->trying.exchange(true)) return;
  mapping_->tried_ns = now;
  run_on_helper_thread([mapping = mapping_] {
    const Current current(mapping->device);
    const RelaxedCapture relaxed(mapping->device.driver());
    mapping->reach.store(mapping->attempt(), std::memory_order_release);
    mapping->trying = false;
  });
}

std::byte* Imported::at(std::size_t offset) const {
  if (reach() != Reach::open || offset >= mapping_->bytes) return nullptr;
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(mapping_->address) + offset);
}

std::shared_ptr<std::atomic<Reach>> reach_context(Device& device, CUcontext other) {
  auto reach = std::make_shared<std::atomic<Reach>>(Reach::pending);
  if (other == device.context()) {
    *reach = Reach::open;
    return reach;
  }
  if (!device.driver().ctx_enable_peer_access) {
    *reach = Reach::refused;
    return reach;
  }
  run_on_helper_thread([reach, other, &device] {
    const Current current(device);
    const RelaxedCapture relaxed(device.driver());
    const CUresult result = device.driver().ctx_enable_peer_access(other, 0);
    const bool open = result == kSuccess || result == kErrorPeerAccessAlreadyEnabled;
    reach->store(open ? Reach::open : Reach::refused, std::memory_order_release);
  });
  return reach;
}

}  // namespace pith::cuda
