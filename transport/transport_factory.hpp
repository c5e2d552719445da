// What start-up, pith-info and the settings know of a transport: one of these for each, all of them
// in transport_table.hpp. ADDING.md says how to add one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "settings/settings.hpp"
#include "transport/handshake.hpp"
#include "transport/peer_transport.hpp"

namespace pith {

// The rank that a transport is made for.
struct TransportSite {
  Scheduler& scheduler;
  Mailbox& mailbox;
  int rank = 0;
  int ranks = 1;
  Secret secret{};
  std::string host;  // where the rank listens
  const Settings& settings;
  bool named = false;  // PITH_TRANSPORT asks for it by name
};

// What carries the bytes, as users choose in NCCL's words too.
enum class Medium : std::uint8_t { threads, shared_memory, rdma, sockets };

// Where this process would listen, or why it cannot, for whoever asks what could be used.
struct ListenPlace {
  Error why_not;
  std::string host;
  std::string why;  // by which rule
};

struct TransportFactory {
  std::string_view name;  // as PITH_TRANSPORT has it
  Medium medium;
  // Descriptors that a peer takes, besides the listener's; of each of PITH_STREAMS streams.
  std::uint8_t descriptors_per_peer = 0;
  std::uint8_t descriptors_per_stream = 0;
  // Where it cannot listen the other transports that are allowed do without it.
  bool dispensable = false;

  // Null in place of a transport: this rank goes without it. A factory without this function is
  // for ranks that are threads of one process, who share memory from the beginning.
  Expected<std::unique_ptr<PeerTransport>> (*make)(const TransportSite& site) = nullptr;
  // What it can be used for here, or as an error why it cannot be used.
  Expected<std::string> (*usable)(const ListenPlace& place) = nullptr;
  // The part of an address by which ranks of one host are told; null: there is none.
  std::string_view (*host_of)(std::string_view address) = nullptr;
};

}  // namespace pith
