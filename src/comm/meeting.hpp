// How the ranks of a communicator find each other: introduce themselves at the bootstrap root,
// attach over shared memory where that works, connect by UCX or TCP everywhere else.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "comm/introduction.hpp"
#include "comm/locality.hpp"
#include "control/control_node.hpp"
#include "core/engine.hpp"
#include "core/settings.hpp"
#include "core/transport_rule.hpp"
#include "transport/shm.hpp"
#include "transport/tcp.hpp"
#include "transport/ucx.hpp"

namespace pith {

class StartLog;

class Meeting {
 public:
  Meeting(Engine& engine, int rank, int ranks, const ControlNode& seat, Gatherer& gatherer,
          const Settings& settings);

  // Collective; the deadline is the gatherer's. After an error the transports are of no use.
  Error hold(StartLog& log);
  // What came of it, in a few words, the same on all.
  std::string summary() const;

  // What came of it. A transport that reaches nobody is null.
  std::unique_ptr<ShmTransport> shm;
  std::unique_ptr<UcxTransport> ucx;
  std::unique_ptr<TcpTransport> tcp;
  // How this rank reaches another one; null: not at all.
  Transport* route_to(std::size_t rank) const;
  bool all_share_memory = true;  // every two ranks; the same on all
  bool any_share_memory = false;
  std::size_t local_ranks = 1;                 // that share our memory
  bool crowded_here = false;                   // more ranks than cores on our host
  bool crowded = false;                        // or on any; the same on all
  bool devices = true;                         // every rank's process uses a CUDA device
  std::vector<std::string> devices_of_others;  // of other processes' ranks, by cuda::uuid_of
  RankOrder order;                             // the same on all
  // Names of the ranks' hosts, the same on all: those reach each other without leaving theirs.
  std::vector<std::size_t> host_names;

 private:
  // Two ranks choose the same, each by itself: the first transport in order that both have.
  enum class Link : std::uint8_t { none, shm, ucx, tcp };

  static std::string_view name_of(Link link);
  std::string reason(std::size_t peer) const;
  void tell_places(const StartLog& log) const;
  void tell(const StartLog& log) const;
  Error introduce();
  Error offer_ucx();
  Error attach();
  Error agree_on_streams();
  void put_in_order(const RankGroups& groups);
  void find_crowds(const RankGroups& groups);
  Error connect();
  Error first(const Error& error) const;
  Link choose(std::size_t a, std::size_t b, bool share_memory) const;
  std::vector<std::uint8_t> reached_by(Link link) const;

  const int rank_;
  const std::size_t ranks_;
  const ControlNode& seat_;
  Gatherer& gatherer_;
  const Settings& settings_;
  const TransportRule rule_;
  static Error check_settings(const std::vector<Introduction>& all, int rank);
  std::vector<std::string> all_of(std::string Introduction::*field) const;

  std::vector<Introduction> all_;       // by rank
  std::vector<Link> links_;             // to each rank
  std::vector<DescriptorNeed> needs_;   // by rank
  std::array<std::size_t, 4> pairs_{};  // of ranks, by Link
  Engine& engine_;
};

}  // namespace pith
