// Connects the ranks of a communicator: they exchange where their transports listen, and each pair
// uses the first transport of the table by which both reach each other.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm_identity.hpp"
#include "core/engine.hpp"
#include "settings/settings.hpp"
#include "settings/transport_rule.hpp"
#include "startup/locality.hpp"
#include "startup/peer_info.hpp"
#include "transport/transport_table.hpp"

namespace pith {

class StartLog;

// What the ranks know of each other; the same on all unless noted.
struct RankFacts {
  bool all_share_memory = true;  // every pair does
  bool any_share_memory = false;
  bool oversubscribed_here = false;            // more ranks than cores on this rank's host
  bool oversubscribed = false;                 // or on any
  bool devices = true;                         // every rank's process uses a CUDA device
  std::vector<std::string> devices_of_others;  // used by other processes, by cuda::uuid_of
  RankOrder order;
  // By rank, the lowest rank that is reached without leaving the host.
  std::vector<std::size_t> host_names;
};

class TransportSetup {
 public:
  // Refers to all that it is given.
  TransportSetup(Engine& engine, const CommIdentity& who, Gatherer& gatherer,
                 const Settings& settings, TransportTable table);

  // Collective; the gatherer sets the deadline. After an error the transports are unusable.
  Error run(StartLog& log);

  // The result in a few words, the same on all ranks.
  std::string summary() const;
  const RankFacts& facts() const { return facts_; }
  // The transport to another rank; null: none.
  Transport* route_to(std::size_t rank) const;
  // Hands over the transports in use; routes stay valid.
  std::vector<std::unique_ptr<PeerTransport>> take_transports();

 private:
  static constexpr std::size_t none = most_transports;
  // For each rank the string of what it has attached: a byte for each peer, a bit for each
  // transport.
  using Reached = std::vector<std::string>;

  std::string_view name_of(std::size_t link) const;
  std::string reason(std::size_t peer) const;
  std::string host_address(std::size_t rank) const;
  void tell_places(const StartLog& log) const;
  void tell(const StartLog& log) const;
  Error exchange();
  Error listen(std::size_t transport, std::string& address);
  bool stands_back(std::size_t transport, const PeerInfo& rank) const;
  std::vector<bool> needed_after_all(std::size_t transport, const Reached& reached) const;
  Error listen_late(Reached& reached);
  Error check_settings() const;
  Error attach(std::size_t transport, std::string& mine);
  Expected<Reached> attach();
  std::uint8_t reach_each_other(const Reached& reached, std::size_t a, std::size_t b) const;
  void choose(const Reached& reached);
  void note_link(std::size_t a, std::size_t b, std::size_t link);
  bool share_host(std::size_t a, std::size_t b, std::uint8_t by) const;
  Error check_all_reached() const;
  Error connect();
  void put_in_order(const RankGroups& groups);
  void find_oversubscribed(const RankGroups& groups);
  Error first(const Error& error) const;
  std::vector<std::string> addresses_of(std::size_t transport) const;
  bool is_memory(std::size_t transport) const {
    return table_[transport]->medium == Medium::shared_memory;
  }

  Engine& engine_;
  const CommIdentity& who_;
  const int rank_;
  const std::size_t ranks_;
  const ControlNode& node_;
  Gatherer& gatherer_;
  const Settings& settings_;
  const TransportTable table_;
  const TransportRule rule_;
  std::vector<std::size_t> order_;  // allowed transports in order of preference, by index in the
                                    // table
  std::vector<std::unique_ptr<PeerTransport>> transports_;  // by index in the table
  std::vector<PeerInfo> all_;                               // by rank
  std::vector<std::size_t> links_;                          // to each rank, by index in the table
  std::vector<DescriptorNeed> needs_;                       // by rank
  std::size_t most_on_host_ = 0;                            // ranks
  std::array<std::size_t, none + 1> pairs_{};               // number of pairs of ranks, by link
  RankFacts facts_;
};

}  // namespace pith
