// What a job knows of its links before its first call: what a file that rank 0 was given says
// (PITH_LINKS), the same on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"

namespace pith {

// Whose links: ranks on hosts. Another job on as many hosts of these names is as good.
struct JobPlaces {
  int ranks = 0;
  int hosts = 0;
  std::uint64_t names = 0;  // a hash of the hosts' names with how many ranks each has

  bool operator==(const JobPlaces&) const = default;
  std::string text() const;  // "4 ranks on 2 hosts"
};

// By rank the hash of its host's name.
JobPlaces places_of(std::vector<std::uint64_t> host_names);
// `apart`: names a part of the host whose ranks share no memory with others.
std::uint64_t host_name_hash(std::string_view apart);

// Seconds of a message and of a byte; 0: not known.
struct KnownLink {
  double alpha = 0;
  double beta = 0;

  bool known() const { return alpha > 0; }
};

struct KnownLinks {
  KnownLink views;     // of ranks that read each other's memory
  KnownLink messages;  // between other ranks of a host
  KnownLink path;      // the slowest between hosts
  KnownLink calls;     // on which whole calls of all ranks take their times
  double gamma = 0;    // seconds of a byte that is reduced; 0: not known

  // What calls are on, of ranks that do not all reach each other's memory.
  const KnownLink& between(bool several_hosts) const;
  std::string pack() const;
  // Nothing is known after text that is not from pack().
  static KnownLinks unpack(std::string_view packed);
};

}  // namespace pith
