// A cluster as a small JSON file describes it:
//
//   {
//     "hosts": 4,
//     "ranks_per_host": 8,              or [8, 8, 4, 4]: one number a host
//     "inside": "shm",                  between ranks of a host: as pith-explain's --link, or
//                                       {"alpha": 1e-6, "beta": 2e-10}: seconds a message and a
//                                       byte
//     "between": "10g,+5ms",            likewise, between hosts
//     "uplink": "shared",               the ranks of a host share its port; "own": each has one
//     "gamma": 2e-10,                   seconds a byte of a reduction
//     "jitter": 1e-5,                   added to latencies, uniform from 0 to this
//     "seed": 1,
//     "bandwidth": [{"at": 0.01, "factor": 0.1}],   from then on, of all links
//     "views": false, "oversubscribed": false       what the library's choice is told
//   }
//
// Every key may be left out but "ranks_per_host". Times are in seconds, from the start of the call.
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "tools/explain/question.hpp"
#include "transport/sim/sim.hpp"

namespace pith_sim {

struct Cluster {
  std::vector<int> ranks_per_host;
  pith::LinkCost inside;
  pith::LinkCost between;
  bool shared_uplink = false;
  double gamma = 0;
  double jitter_s = 0;
  std::uint64_t seed = 1;
  std::vector<pith::SimConfig::Bandwidth> bandwidth;
  bool views = false;
  bool oversubscribed = false;

  int hosts() const { return static_cast<int>(ranks_per_host.size()); }
  int ranks() const;
};

// `name` is that of the file, for messages.
pith::Expected<Cluster> read_cluster(const std::string& text, const std::string& name);

// The first `ranks` ranks of it: hosts in order, each with as many as it has.
pith::Expected<Cluster> with_ranks(const Cluster& cluster, int ranks);

// The host of each rank.
std::vector<int> hosts_of(const Cluster& cluster);

pith::SimConfig config_of(const Cluster& cluster);

// What is asked of the library's choice and of cost functions, which know one link: that between
// hosts if there are several.
pith_explain::Question question_of(const Cluster& cluster, pith::Collective collective,
                                   std::size_t bytes);

}  // namespace pith_sim
