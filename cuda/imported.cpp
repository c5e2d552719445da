#include "cuda/imported.hpp"

#include <fmt/format.h>

#include "core/log.hpp"
#include "cuda/helper_thread.hpp"

namespace pith::cuda {

void Imported::Mapping::open() {
  const Driver& driver = device.driver();
  const Current current(device);
  const RelaxedCapture relaxed(driver);
  const CUresult result = driver.ipc_open_handle(&address, handle, kIpcLazyPeerAccess);
  if (result != kSuccess) {
    log(LogLevel::info,
        fmt::format("device memory of another process is copied by way of the host, for it cannot "
                    "be mapped: {}",
                    driver.describe(result)),
        LogTopic::p2p);
  }
  reach.store(result == kSuccess ? Reach::open : Reach::refused, std::memory_order_release);
}

void Imported::Mapping::close() {
  if (reach.load(std::memory_order_acquire) != Reach::open) return;
  const Current current(device);
  const RelaxedCapture relaxed(device.driver());
  device.driver().ipc_close_handle(address);
}

Imported::Imported(Device& device, const CUipcMemHandle& handle, std::size_t bytes)
    : mapping_(new Mapping{device, handle, bytes}) {
  run_on_helper_thread([mapping = mapping_] { mapping->open(); });
}

Imported::~Imported() {
  if (mapping_) run_on_helper_thread([mapping = mapping_] { mapping->close(); });
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
