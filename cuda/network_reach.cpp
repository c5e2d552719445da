#include "cuda/network_reach.hpp"

#include <unistd.h>

namespace pith::cuda {

NetworkReach::NetworkReach(Device& device) : device_(device) {
  const Driver& driver = device_.driver();
  CUdevice number = 0;
  const auto value_of = [&](CUdevice_attribute attribute, int& value) {
    return driver.device_attribute(&value, attribute, number) == kSuccess;
  };
  int reached = 0;
  int order = 0;
  int flushes = 0;
  const bool asked =
      driver.ctx_get_device(&number) == kSuccess && value_of(kDeviceReachedByNetwork, reached) &&
      value_of(kDeviceNetworkOrder, order) && value_of(kDeviceNetworkFlushes, flushes);
  must_flush_ = order < kNetworkWritesToOwner;
  const bool can_flush = driver.flush_network_writes && (flushes & kNetworkFlushByHost) != 0;
  if (!asked || reached == 0 || (must_flush_ && !can_flush)) return;
  memory_ = id_of(driver, device_.context());
  int exports = 0;
  exports_ = driver.range_handle && value_of(kDeviceExportsDmaBufs, exports) && exports != 0;
}

ExportedMemory NetworkReach::export_memory(const std::byte* at) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const Driver& driver = device_.driver();
  const Current current(device_);
  const RelaxedCapture relaxed(driver);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  if (driver.mem_address_range(&base, &bytes, address_of(at)) != kSuccess) return {};
  bytes -= bytes % page;
  int descriptor = -1;
  const CUresult exported = driver.range_handle(&descriptor, base, bytes, kRangeAsDmaBuf, 0);
  if (exported != kSuccess) return {};
  return {descriptor, reinterpret_cast<const std::byte*>(base), bytes};
}

CUresult NetworkReach::see_writes() const {
  if (!must_flush_) return kSuccess;
  const Current current(device_);
  return device_.driver().flush_network_writes(kNetworkWritesOfContext, kNetworkWritesToOwner);
}

}  // namespace pith::cuda
