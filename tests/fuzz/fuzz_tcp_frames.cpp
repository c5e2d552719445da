// The data streams of a TCP peer: frames on two streams, cut anywhere.
#include "fuzz_target.hpp"
#include "tests/transport/fuzz_tcp_reader.hpp"

namespace pith::fuzz {

void run(std::span<const std::uint8_t> input) { test::feed_tcp_reader(input); }

namespace {

// As feed_tcp_reader takes it: how much follows, and on which stream.
void bite(std::string& out, std::string_view bytes, unsigned stream) {
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, 128);
    out += static_cast<char>((part.size() - 1) * 2 + stream);
    out += part;
    bytes.remove_prefix(part.size());
  }
}

std::string frame_of(FrameType type, std::uint32_t bytes, std::uint32_t offset) {
  Frame frame;
  frame.type = type;
  frame.bytes = bytes;
  frame.offset = offset;
  return {reinterpret_cast<const char*>(&frame), sizeof frame};
}

std::string opening_of(FrameType type, std::uint32_t bytes, std::uint32_t length) {
  MessageOpening opening;
  opening.frame.type = type;
  opening.frame.bytes = bytes;
  opening.header.length = length;
  return {reinterpret_cast<const char*>(&opening), sizeof opening};
}

}  // namespace

std::vector<std::string> seeds() {
  std::string whole;
  bite(whole, opening_of(FrameType::message, 20, 20) + std::string(20, 'x'), 0);
  bite(whole, opening_of(FrameType::message, 0, 0) + frame_of(FrameType::goodbye, 0, 0), 0);
  std::string cut;
  bite(cut, frame_of(FrameType::piece, 200, 100) + std::string(200, 'p'), 1);
  bite(cut, opening_of(FrameType::large, 100, 300) + std::string(100, 'l'), 0);
  return {whole, cut};
}

}  // namespace pith::fuzz
