// What each rank sends to all others before they connect.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "startup/descriptor_share.hpp"
#include "startup/usable_cores.hpp"

namespace pith {

struct PeerInfo {
  std::string settings;
  // Where each transport of the table listens; empty: this rank does not use it.
  std::vector<std::string> addresses;
  std::string locality;
  UsableCores cores;
  std::vector<std::string> devices;  // CUDA devices that the process uses, by cuda::uuid_of
  std::string host_id;               // PITH_HOST_ID
  DescriptorShare descriptors;

  std::string pack() const;
  // Missing fields are empty.
  static PeerInfo unpack(std::string_view blob);
};

}  // namespace pith
