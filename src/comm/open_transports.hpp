// The transports by which one rank of a communicator reaches the others. With the engine's token.
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
  // `engine`: drives them, and outlives them.
  explicit OpenTransports(Engine& engine) : engine_(engine) {}

  // While the ranks connect, without the token.
  void add(std::unique_ptr<PeerTransport> transport);

  template <class See>
  void for_each_sending(const See& see) const {
    for (const auto& transport : all_) transport->for_each_sending(see);
  }
  // Often while calls stand still. Whether the links live, as far as their transports look after
  // that.
  void look_at_links(std::uint64_t now_ns);
  // Whether one of them has this to say of its link to the rank.
  bool is_link(int rank, LinkState state) const;

  // The communicator is revoked: operations that wait end.
  void quiesce(const CommState& state, const Error& error);
  // Nobody drives the engine any more. What was sent arrives by the deadline.
  void close(std::uint64_t deadline_ns);

 private:
  Engine& engine_;
  std::vector<std::unique_ptr<PeerTransport>> all_;
};

}  // namespace pith
