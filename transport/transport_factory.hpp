// How start-up, pith-info and the settings see a transport: one factory for each, all listed in
// transport_table.hpp. ADDING.md says how to add one.
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

// What carries the bytes; NCCL's variables choose by it, too.
enum class Medium : std::uint8_t { threads, shared_memory, rdma, sockets };

// Where this process would listen, or why it cannot; for reports of what could be used.
struct ListenPlace {
  Error why_not;
  std::string host;
  std::string why;  // the rule that chose it
};

struct TransportFactory {
  std::string_view name;  // its name in PITH_TRANSPORT
  Medium medium;
  bool encrypts = false;  // what it sends, with PITH_ENCRYPT=1
  // Descriptors for each peer, besides the listener's, and for each of PITH_STREAMS streams to it.
  std::uint8_t descriptors_per_peer = 0;
  std::uint8_t descriptors_per_stream = 0;
  // If it cannot listen, the other allowed transports are used without it.
  bool dispensable = false;
  // An earlier one of the table that carries what this one does. Where it listens, and nobody asks
  // for this one by name, this one is made only for pairs of ranks that do not reach each other by
  // it. Empty: there is none.
  std::string_view stands_in_for{};

  // Returns null if this rank does not use it. `make` itself is null for ranks that are threads of
  // one process, which share memory from the beginning.
  Expected<std::unique_ptr<PeerTransport>> (*make)(const TransportSite& site) = nullptr;
  // What it can be used for here; the error says why it cannot.
  Expected<std::string> (*usable)(const ListenPlace& place) = nullptr;
  // The part of an address that ranks of one host have in common; null: there is none.
  std::string_view (*host_of)(std::string_view address) = nullptr;

  // With PITH_ENCRYPT=1: only if nobody else on the network can read what it carries.
  bool is_allowed(const Settings& settings) const {
    const bool leaves_host = medium == Medium::rdma || medium == Medium::sockets;
    return !settings.tcp.encrypt || encrypts || !leaves_host;
  }
};

// What `make` returns where the transport of this name cannot be made: nothing, so that others are
// used, or, if PITH_TRANSPORT names it, an error that says why.
Expected<std::unique_ptr<PeerTransport>> not_available(const TransportSite& site,
                                                       std::string_view name, const Error& why);

}  // namespace pith
