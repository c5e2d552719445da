// What a rank tells the others before they attach. Empty: it does not have that transport.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/descriptor_share.hpp"
#include "comm/usable_cores.hpp"

namespace pith {

struct Introduction {
  std::string settings;
  std::string shm_name;
  std::string ucx_address;
  std::string tcp_address;
  std::string locality;
  UsableCores cores;
  std::vector<std::string> devices;  // CUDA's, that the process uses, by cuda::uuid_of
  std::string host_id;               // PITH_HOST_ID
  DescriptorShare descriptors;

  std::string pack() const;
  // What is missing in the text is empty.
  static Introduction unpack(std::string_view blob);
};

}  // namespace pith
