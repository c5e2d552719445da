// How ranks reach each other's device memory: the seam between the opening of a collective and
// whoever knows the driver. What one rank has to tell another before kernels of the other may touch
// its memory goes by notes, which the opening carries; what a call needs is then one word.
//
// Ranks are the communicator's. A rank offers memory only to a peer that has said that it reaches
// it, so the first calls on new memory go by messages: mapping it takes a while, and no call waits.
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
  // Words are below this.
  static constexpr std::uint64_t words_end = std::uint64_t{1} << 61;

  // Our own name for memory of ours, good for the length of a call; 0: nobody else can reach it.
  virtual std::uint64_t identify(Bytes memory) = 0;
  // A word by which the peer finds the memory; 0: it cannot reach it, or not yet.
  virtual std::uint64_t expose(int peer, std::uint64_t mine) = 0;
  // Where a peer's word leads, as an address here; null for a word that is none.
  virtual std::byte* map(int peer, std::uint64_t word) = 0;

  // What the peer has to know, this call's memory included; false: nothing new.
  virtual bool write_note(int peer, std::span<const std::uint64_t> mine, Note& note) = 0;
  virtual void read_note(int peer, const Note& note) = 0;

 protected:
  ~PeerMemory() = default;
};

// What a Compute also is where the memory it works on can be reached by peers.
class ReachedByPeers {
 public:
  // Null: nobody is to reach it.
  virtual PeerMemory* peer_memory() const = 0;

 protected:
  ~ReachedByPeers() = default;
};

}  // namespace pith
