#include "startup/peer_info.hpp"

#include "startup/blob.hpp"

namespace pith {

std::string PeerInfo::pack() const {
  return join_strings({settings, join_strings(addresses), locality, cores.pack(),
                       join_strings(devices), host_id, descriptors.pack()});
}

PeerInfo PeerInfo::unpack(std::string_view blob) {
  std::vector<std::string> strings = split_strings(blob);
  strings.resize(7);
  return {strings[0],
          split_strings(strings[1]),
          strings[2],
          UsableCores::unpack(strings[3]),
          split_strings(strings[4]),
          strings[5],
          DescriptorShare::unpack(strings[6])};
}

}  // namespace pith
