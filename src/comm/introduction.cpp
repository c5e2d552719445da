#include "comm/introduction.hpp"

#include <vector>

#include "comm/blob.hpp"

namespace pith {

std::string Introduction::pack() const {
  return join_strings({settings, shm_name, ucx_address, tcp_address, locality, cores.pack(),
                       join_strings(devices), host_id, descriptors.pack()});
}

Introduction Introduction::unpack(std::string_view blob) {
  std::vector<std::string> strings = split_strings(blob);
  strings.resize(9);
  return {strings[0],
          strings[1],
          strings[2],
          strings[3],
          strings[4],
          UsableCores::unpack(strings[5]),
          split_strings(strings[6]),
          strings[7],
          DescriptorShare::unpack(strings[8])};
}

}  // namespace pith
