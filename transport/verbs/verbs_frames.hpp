// What ranks say to each other over InfiniBand verbs: an address at start-up, and frames over the
// control connection of each pair. Both directions of a pair share no state but these.
//
//   message, piece      payload of a message, whole or in order
//   announce            a long message stays with its sender until the receiver grants it a place
//   grant               the place: the sender writes there over the data connections
//   portion             the payload of a granted message whose place is not registered
//   dropped             the receiver does not want an announced message
//   withdrawn           the sender's call has ended before its message was written
//   restart             the data connections start anew: what is not written yet is granted again
//   credit              only tells how many frames have been taken, as every frame does
//   goodbye, farewell   the sender leaves; the answer
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/operation.hpp"
#include "transport/verbs/verbs_memory.hpp"
#include "transport/verbs/verbs_queue_pair.hpp"

namespace pith {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

enum class VerbsKind : std::uint8_t {
  message = 1,
  piece,
  announce,
  grant,
  portion,
  dropped,
  withdrawn,
  restart,
  credit,
  goodbye,
  farewell,
};

struct VerbsHead {
  std::uint8_t version = wire_version;
  VerbsKind kind = VerbsKind::credit;
  std::uint16_t zero = 0;
  std::uint32_t taken = 0;     // frames that the sender of this has taken so far, modulo 2^32
  std::uint32_t transfer = 0;  // the receiving rank's name for the announced message
  std::uint32_t answer = 0;    // the sending rank's name for it
  std::uint32_t epoch = 0;     // of the data connections
  std::uint32_t offset = 0;    // of a piece or portion
  std::uint64_t place = 0;     // of a grant: an address
  Header header;               // of a message, piece or announce
};
static_assert(sizeof(VerbsHead) == 64);

inline constexpr std::size_t verbs_payload_max = std::size_t{16} << 10;
inline constexpr std::size_t verbs_frame_max = sizeof(VerbsHead) + verbs_payload_max;
// Granted messages of one direction of a pair.
inline constexpr std::size_t verbs_grants_max = 32;

// Of a grant: the keys of the place by rail; none where it is not registered.
struct VerbsKeys {
  std::uint32_t of_rail[verbs_rails_max] = {};
};

// Of a restart: the sender's new ends, and which of the receiver's messages have not arrived: they
// are granted again, or refused. The receiver's others that were being written have arrived.
struct VerbsRestart {
  std::uint32_t first_packets[verbs_rails_max] = {};
  std::uint32_t wanted = 0;
  std::uint32_t transfers[verbs_grants_max] = {};
};

// Only whole frames are counted against the peer's room; credits have room of their own.
inline bool is_counted(VerbsKind kind) { return kind != VerbsKind::credit; }
// These take effect in the order of messages; the others at once.
inline bool is_ordered(VerbsKind kind) {
  return kind == VerbsKind::message || kind == VerbsKind::piece || kind == VerbsKind::announce ||
         kind == VerbsKind::goodbye;
}

// Null, or what is wrong with a frame that came with `bytes` of payload.
const char* fault_of(const VerbsHead& head, std::size_t bytes);

// What a rank publishes: its ports, and its ends for each other rank.
struct VerbsAddress {
  struct Ends {
    VerbsEnd control;
    std::vector<VerbsEnd> data;  // by rail
  };
  std::uint32_t window = 0;  // frames that may be on their way to it
  std::vector<VerbsPlace> rails;
  std::vector<Ends> ends;  // by rank; number 0: none

  std::string pack() const;
  // `rank`: whose ends are wanted; only ends[0] is filled. Fails where the bytes are no address.
  static Expected<VerbsAddress> unpack(std::string_view bytes, int rank);
};

}  // namespace pith
