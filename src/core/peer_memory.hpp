// How ranks access each other's device memory: the seam between the opening of a collective, in
// which ranks exchange handles, and the code that knows the driver. A note tells a peer what it
// needs before its kernels can access memory of this rank; the opening carries it. Afterwards a
// call names memory by one word.
//
// Ranks are numbered as in the communicator. A rank exposes memory only to a peer that has
// confirmed that it can access it. Mapping takes a while and no call waits for it, so the first
// calls on new memory use messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/memory.hpp"

namespace pith {

class PeerMemory {
 public:
  using Note = std::array<std::byte, 256>;
  // All words are less than this.
  static constexpr std::uint64_t words_end = std::uint64_t{1} << 61;

  // An id of memory of this rank, valid during the call; 0: no peer can access it.
  virtual std::uint64_t identify(Bytes memory) = 0;
  // The word by which the peer finds the memory; 0: it cannot access it, or not yet.
  virtual std::uint64_t expose(int peer, std::uint64_t mine) = 0;
  // The address, in this process, of the memory that a peer's word names; null for an invalid word.
  virtual std::byte* map(int peer, std::uint64_t word) = 0;

  // Writes what the peer does not know yet, including this call's memory; false: nothing new.
  virtual bool write_note(int peer, std::span<const std::uint64_t> mine, Note& note) = 0;
  virtual void read_note(int peer, const Note& note) = 0;

 protected:
  ~PeerMemory() = default;
};

// Implemented by a Compute whose memory peers can access.
class ReachedByPeers {
 public:
  // Null: peer access is not to be used.
  virtual PeerMemory* peer_memory() const = 0;

 protected:
  ~ReachedByPeers() = default;
};

}  // namespace pith
