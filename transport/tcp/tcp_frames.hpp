// The format of a TCP stream between two ranks: a sequence of frames.
//
//   message  Frame Header payload   a whole message
//   large    Frame Header payload   announces a cut message and carries its first piece
//   piece    Frame payload          a further piece of an announced message; any stream
//   move     Frame                  further messages begin on the stream `message`
//   goodbye  Frame                  the sender leaves in order; nothing follows on this stream
//
// At any time messages begin on one stream only, at first on stream 0, in the order of sending. So
// equal tags keep their order even though pieces on other streams overtake one another.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/operation.hpp"

namespace pith {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

enum class FrameType : std::uint8_t { message = 1, large = 2, piece = 3, goodbye = 4, move = 5 };

struct Frame {
  std::uint8_t version = wire_version;
  FrameType type = FrameType::message;
  std::uint16_t zero = 0;
  std::uint32_t bytes = 0;    // payload in this frame
  std::uint32_t message = 0;  // counts the cut messages of a sender to a peer; of a move, a stream
  std::uint32_t offset = 0;   // of the piece within its message
};
static_assert(sizeof(Frame) == 16);

// Precedes the payload of `message` and `large`.
struct MessageOpening {
  Frame frame;
  Header header;
};
static_assert(sizeof(MessageOpening) == sizeof(Frame) + sizeof(Header));

inline bool opens(FrameType type) { return type == FrameType::message || type == FrameType::large; }

// Null, or what is wrong with a frame.
inline const char* fault_of(const Frame& frame) {
  if (frame.version != wire_version) return "a frame of another wire version";
  if (frame.zero != 0 || frame.bytes > message_bytes_max) return "a frame that makes no sense";
  switch (frame.type) {
    case FrameType::message:
    case FrameType::large:
      return frame.offset == 0 ? nullptr : "a message that begins in its middle";
    case FrameType::piece:
      return frame.bytes != 0 ? nullptr : "an empty piece";
    case FrameType::move:
      return frame.bytes == 0 ? nullptr : "a move with payload";
    case FrameType::goodbye:
      return frame.bytes == 0 ? nullptr : "a goodbye with payload";
  }
  return "a frame of unknown type";
}

inline const char* fault_of(const MessageOpening& opening) {
  const Frame& frame = opening.frame;
  const Header& header = opening.header;
  if (header.version != wire_version) return "a message of another wire version";
  if (header.length > message_bytes_max) return "a message that is too long";
  if (frame.type == FrameType::message && frame.bytes != header.length) {
    return "a message whose lengths differ";
  }
  if (frame.type == FrameType::large && (frame.bytes == 0 || frame.bytes > header.length)) {
    return "a piece outside its message";
  }
  return nullptr;
}

}  // namespace pith
