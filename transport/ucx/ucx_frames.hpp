// The header of UCX active messages, and how a rank proves that it belongs to the job.
//
// Every message carries a token of 64 bits: HMAC-SHA256 of the job's secret over direction, ranks
// and a nonce of either side. The nonces and UCX's addresses are exchanged in the authenticated
// start-up, so messages of other processes are dropped. Like the TCP streams, messages are not
// encrypted.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/operation.hpp"
#include "transport/handshake.hpp"

namespace pith {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

enum class UcxKind : std::uint8_t {
  piece = 1,     // of a message, in the order of `sequence`; pieces of a message follow each other
  goodbye = 2,   // in the same order: the sender leaves, nothing follows
  credit = 3,    // only reports, as every header does, how much was taken
  hello = 4,     // at start-up
  ready = 5,     // at start-up, once UCX has connected the sender's side
  farewell = 6,  // answers a goodbye
  direct = 7,    // a whole message in the order of `sequence`, which stays with its sender until
                 // the receiver fetches it
};

struct UcxHead {
  std::uint8_t version = wire_version;
  UcxKind kind = UcxKind::piece;
  std::uint16_t zero = 0;
  std::uint32_t from = 0;
  std::uint64_t token = 0;
  std::uint32_t sequence = 0;
  std::uint32_t offset = 0;  // of the piece within its message
  std::uint64_t taken = 0;   // total cost that the sender has taken from the receiver of this
  Header header;             // of the whole message
};
static_assert(sizeof(UcxHead) == 64);

inline bool is_sequenced(UcxKind kind) {
  return kind == UcxKind::piece || kind == UcxKind::goodbye || kind == UcxKind::direct;
}

inline constexpr std::size_t ucx_piece_max = std::size_t{64} << 10;

// What a message takes of the window; small ones also cost memory at the receiver.
inline std::uint64_t ucx_cost(std::size_t bytes) { return bytes + 256; }

// Null, or what is wrong with a header that came with `bytes` of payload.
inline const char* fault_of(const UcxHead& head, std::size_t bytes) {
  if (head.version != wire_version) return "a message of another wire version";
  if (head.zero != 0) return "a message that makes no sense";
  const Header& header = head.header;
  if (head.kind == UcxKind::piece || head.kind == UcxKind::direct) {
    if (header.version != wire_version) return "a message of another wire version";
    if (header.length > message_bytes_max) return "a message that is too long";
  }
  if (head.kind == UcxKind::direct) {
    return bytes == header.length && bytes != 0 ? nullptr : "a part of what is fetched whole";
  }
  if (head.kind == UcxKind::piece) {
    if (bytes > ucx_piece_max) return "a piece that is too long";
    if (head.offset > header.length || bytes > header.length - head.offset) {
      return "a piece outside its message";
    }
    return bytes != 0 || header.length == 0 ? nullptr : "an empty piece";
  }
  if (head.kind > UcxKind::direct || head.kind < UcxKind::piece) {
    return "a message of unknown kind";
  }
  return bytes == 0 ? nullptr : "payload where none belongs";
}

using UcxNonce = std::array<std::byte, 16>;

// What a rank publishes: a nonce, then UCX's own address.
struct UcxAddress {
  UcxNonce nonce{};
  std::string worker;

  std::string pack() const;
  // Fails where the bytes are no address.
  static Expected<UcxAddress> unpack(std::string_view bytes);
};

Expected<UcxNonce> fresh_ucx_nonce();

// For messages from one rank to another.
struct UcxTokenInput {
  int from = 0;
  int to = 0;
  int ranks = 0;
  UcxNonce from_nonce{};
  UcxNonce to_nonce{};
};
std::uint64_t ucx_token(const Secret& secret, const UcxTokenInput& input);

}  // namespace pith
