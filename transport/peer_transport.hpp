// A transport between ranks that start-up connects: how one rank's end of it comes to be, which
// peers it reaches, whether its links live, and how the rank leaves.
//
// Order of use: listen, tell every rank the address, attach, agree with the peers on who uses it,
// connect, then the seam's functions, at last close. Leases of messages must be given back before
// the transport is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "transport/transport.hpp"

namespace pith {

enum class LinkState : std::uint8_t {
  up,        // or there is none
  doubtful,  // by the last look it may be that nothing passes, though the peer lives for all we
             // know
  cut_off,   // given up because nothing passes; the peer may live
};

class PeerTransport : public Transport {
 public:
  // Opens what the peers are to find. The result tells them where it is: bytes, not text.
  virtual Expected<std::string> listen() = 0;
  // `addresses` by rank, as listen() gave them; empty: that peer is not to be tried. attached[p]
  // tells whether p can be reached; that it cannot is no error. The two ends can disagree when the
  // deadline falls between: only what both have counts.
  virtual Error attach(std::span<const std::string> addresses, std::vector<bool>& attached,
                       const Patience& patience);
  // How many connections a pair has, where it has several; the same on all, before connect().
  virtual void use_streams(int) {}
  // Connects to every peer p with use[p], which must do the same, and lets go of all others. Blocks
  // until all are there.
  virtual Error connect(std::span<const std::string> addresses, std::span<const std::uint8_t> use,
                        const Patience& patience) = 0;
  // Leaves in order: what is on its way is sent, as far as the deadline allows, and the peers are
  // told, so that nobody reports a loss.
  virtual void close(std::uint64_t deadline_ns) = 0;

  // Called from progress(), once per peer: it is lost, or has left while something waits for it.
  // Whoever owns the communicators revokes those with this peer.
  std::function<void(int peer, const Error& error)> on_peer_lost;

  // Whether the links live, where the system does not judge that: to be called often while calls
  // stand still, and never else. Looks every now and then only.
  virtual void look_at_links(std::uint64_t) {}
  virtual LinkState link_to(int) const { return LinkState::up; }
};

inline Error PeerTransport::attach(std::span<const std::string> addresses,
                                   std::vector<bool>& attached, const Patience&) {
  attached.resize(addresses.size());
  for (std::size_t p = 0; p < addresses.size(); ++p) attached[p] = !addresses[p].empty();
  return {};
}

// What on_peer_lost and later sends are told.
Error peer_lost(int rank, std::string_view how);
Error peer_left(int rank);

}  // namespace pith
