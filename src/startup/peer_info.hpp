// What a rank tells the others before they connect.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "startup/descriptor_share.hpp"
#include "startup/usable_cores.hpp"

namespace pith {

struct PeerInfo {
  std::string settings;
  // By transport of the table, what each listens at; empty: the rank goes without that one.
  std::vector<std::string> addresses;
  std::string locality;
  UsableCores cores;
  std::vector<std::string> devices;  // CUDA's, that the process uses, by cuda::uuid_of
  std::string host_id;               // PITH_HOST_ID
  DescriptorShare descriptors;

  std::string pack() const;
  // What is missing in the text is empty.
  static PeerInfo unpack(std::string_view blob);
};

}  // namespace pith
