// The transports by which one rank of a communicator reaches the others. Functions need the
// engine's token unless they say otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/engine.hpp"
#include "transport/peer_transport.hpp"

namespace pith {

class OpenTransports {
 public:
  // `engine`: drives the transports and outlives them.
  explicit OpenTransports(Engine& engine) : engine_(engine) {}

  // Called while the ranks connect, without the token, once the engine knows of its cores.
  void add(std::unique_ptr<PeerTransport> transport);

  template <class See>
  void for_each_sending(const See& see) const {
    for (const auto& transport : all_) transport->for_each_sending(see);
  }
  // Checks whether the links are alive, as far as their transports can tell. Called often while
  // calls make no progress.
  void look_at_links(std::uint64_t now_ns);
  // Whether a transport reports this state of its link to the rank.
  bool is_link(int rank, LinkState state) const;

  // Ends the waiting operations of a revoked communicator.
  void quiesce(const CommState& state, const Error& error);
  // Precondition: no other thread drives the engine. Delivers what was sent, by the deadline.
  void close(std::uint64_t deadline_ns);

 private:
  Engine& engine_;
  std::vector<std::unique_ptr<PeerTransport>> all_;
};

}  // namespace pith
