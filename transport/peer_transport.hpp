// A transport between ranks that start-up connects: how a rank's end is made, which peers it
// reaches, whether its links are alive, and how the rank leaves.
//
// Order of use: listen, give every rank the address, attach, agree with the peers on the transport
// of each pair, connect, then the functions of Transport, at last close. Leased messages must be
// returned before the transport is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "transport/start_pairs.hpp"
#include "transport/transport.hpp"

namespace pith {

enum class LinkState : std::uint8_t {
  up,        // or there is no link
  doubtful,  // by the last check possibly nothing passes, though the peer is believed to live
  cut_off,   // given up because nothing passes; the peer may live
};

class PeerTransport : public Transport {
 public:
  using Transport::Transport;
  // Opens what peers connect to. Returns the address for them: bytes, not text.
  virtual Expected<std::string> listen() = 0;
  // `addresses` by rank, as listen() returned them; empty: do not try that peer. attached[p] tells
  // whether p can be reached; it is no error if it cannot. The two ends can disagree when the
  // deadline falls between; only what both report counts.
  virtual Error attach(std::span<const std::string> addresses, std::vector<bool>& attached,
                       const Patience& patience);
  // Before connect().
  virtual void use_streams(const PairStreams&) {}
  // Connects to every peer p with use[p], which must do the same, and detaches all others. Blocks
  // until all are connected; a transport may leave some until the first message wants them.
  virtual Error connect(std::span<const std::string> addresses, std::span<const std::uint8_t> use,
                        const Patience& patience) = 0;
  // Leaves in order: sends what is queued, until the deadline, and tells the peers, so that none
  // reports a loss.
  virtual void close(std::uint64_t deadline_ns) = 0;

  // Whether a host has more ranks than cores: then what is copied across processes waits for no
  // peer to be on a core.
  void set_oversubscribed(bool value) { oversubscribed_ = value; }
  bool is_oversubscribed() const { return oversubscribed_; }

  // Called from progress(), once a peer: it is lost, or has left while something waits for it. The
  // owner revokes the communicators with this peer.
  std::function<void(int peer, const Error& error)> on_peer_lost;

  // Checks links where the system does not. Call it often while calls are stalled, and only then;
  // most calls return at once.
  virtual void look_at_links(std::uint64_t) {}
  virtual LinkState link_to(int) const { return LinkState::up; }
  // The longest time that a message to any peer and its answer take without load, in seconds, where
  // the system has measured it for each connection; 0: it has not.
  virtual double round_trip_s() const { return 0; }

 private:
  bool oversubscribed_ = false;
};

inline Error PeerTransport::attach(std::span<const std::string> addresses,
                                   std::vector<bool>& attached, const Patience&) {
  attached.resize(addresses.size());
  for (std::size_t p = 0; p < addresses.size(); ++p) attached[p] = !addresses[p].empty();
  return {};
}

// The errors that on_peer_lost and later sends get.
Error peer_lost(int rank, std::string_view how);
Error peer_left(int rank);

}  // namespace pith
