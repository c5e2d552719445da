// PITH_VERBS: how the verbs transport uses RDMA devices, as key=value pairs separated by commas.
#pragma once

#include <cstddef>
#include <string>

#include "core/error.hpp"

namespace pith {

struct VerbsSettings {
  std::string devices;  // names or name:port, separated by commas; ^ before: all others
  int gid = -1;         // index; -1: the one of the address where this rank listens, or the best
  int pkey = 0;         // index
  int level = 0;        // service level
  int traffic_class = 0;
  int mtu = 0;       // bytes; 0: the ports'
  int timeout = 14;  // an acknowledgement is waited for 4.096 us * 2^timeout
  int retries = 6;   // 7 means for ever to soft-RoCE
  std::size_t cache = std::size_t{8} << 30;  // bytes of callers' memory that stay registered

  std::string text() const;  // only what differs from the above; parse_verbs_settings() reads it
};

inline constexpr const char* verbs_settings_meaning =
    "how verbs uses RDMA devices: devices=name:port+name, or devices=^name; gid=, pkey= indices; "
    "level=, class= of service; mtu= bytes; timeout=14: an answer is waited for 4.096 us * 2^14, "
    "retries=6 times; cache=8589934592 bytes of memory stay registered, 0: all goes by copies";

Expected<VerbsSettings> parse_verbs_settings(const std::string& text);

}  // namespace pith
