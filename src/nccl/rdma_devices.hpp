// NCCL_IB_HCA, which may name devices by how they begin.
#pragma once

#include <filesystem>
#include <string>

namespace pith::nccl {

// The ports that the list "[^][=]name[:port],..." leaves of those in `folder`, as "mlx5_0:1,...". A
// name stands for all devices that begin so, after '=' for itself alone, and without a port for all
// its ports; after '^' those named are left out. Names in full that this host lacks are returned,
// too: whoever looks for them says so. Empty: no device is left.
std::string rdma_devices(const std::string& list,
                         const std::filesystem::path& folder = "/sys/class/infiniband");

}  // namespace pith::nccl
