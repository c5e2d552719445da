#include "streams/stream_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/log.hpp"

namespace pith {

namespace {

// Per rank: whether it runs on this rank's host.
std::vector<bool> ranks_nearby(const CallContext& context) {
  std::vector<bool> nearby(static_cast<std::size_t>(context.size), false);
  const Hosts* hosts = context.hosts;
  for (int place = 0; hosts && place < context.size; ++place) {
    const auto rank = static_cast<std::size_t>(context.order->rank_at(place));
    nearby[rank] = hosts->host_of(place) == hosts->host_of(context.rank);
  }
  return nearby;
}

// Processes that share a device take turns on it, and a worker that waits for another process would
// use up its own process's turn.
bool has_workers(const StreamOptions& options, int rank, const cuda::Device& device) {
  if (options.by_workers) return *options.by_workers;
  const std::string uuid = device.uuid();
  const auto& others = options.devices_of_others;
  if (uuid.empty() || std::find(others.begin(), others.end(), uuid) == others.end()) return true;
  log(LogLevel::info,
      fmt::format(
          "rank {}: ranks of other processes use CUDA device {} too, so each step of a call "
          "is launched (PITH_CUDA_STEPS)",
          rank, uuid));
  return false;
}

}  // namespace

Expected<std::unique_ptr<StreamDevice>> StreamDevice::create(Links& links,
                                                             const StreamOptions& options,
                                                             cuda::Device& device) {
  const unsigned workers = has_workers(options, links.rank(), device) ? options.blocks : 0;
  Expected<std::unique_ptr<cuda::CudaCompute>> compute =
      cuda::CudaCompute::create(device, workers, options.blocks);
  if (!compute) return compute.error();
  return std::unique_ptr<StreamDevice>(
      new StreamDevice(links, options.cuda_ipc, device, std::move(*compute)));
}

StreamDevice::StreamDevice(Links& links, bool cuda_ipc, cuda::Device& device,
                           std::unique_ptr<cuda::CudaCompute> compute)
    : device_(device),
      pinned_(device, links.compute()),
      compute_(std::move(compute)),
      context_(links.context()) {
  context_.compute = compute_.get();
  context_.host = &pinned_;
  if (context_.views && cuda_ipc) {
    compute_->set_peer_memory(&peers_.emplace(device, ranks_nearby(context_)));
  }
}

StreamDevice::Looks StreamDevice::look_at(const CollectiveArgs& args) {
  if (!peers_) return {};
  return {peers_->look_at(args.send), peers_->look_at(args.recv)};
}

void StreamDevice::let_go(Looks& looks) {
  if (!peers_) return;
  for (std::uint32_t& slot : looks) peers_->let_go(std::exchange(slot, 0));
}

void StreamDevice::look_for_freed() {
  if (peers_) peers_->look_for_freed();
}

}  // namespace pith
