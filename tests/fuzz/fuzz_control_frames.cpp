// Bytes of a control connection, cut anywhere; and blobs of the bootstrap.
#include "control/control_frames.hpp"
#include "fuzz_target.hpp"
#include "startup/blob.hpp"

namespace pith::fuzz {

// The first byte of each bite says how long it is.
void run(std::span<const std::uint8_t> input) {
  Bites bites(input);
  ControlFrames frames;
  std::size_t arrived = 0;
  std::size_t taken = 0;
  auto what = ControlFrames::What::nothing;
  while (!bites.empty() && what == ControlFrames::What::nothing) {
    const std::string_view bytes = bites.bytes(bites.byte() + std::size_t{1});
    frames.arrived(bytes);
    arrived += bytes.size();
    std::string_view message;
    while ((what = frames.next(message)) == ControlFrames::What::message) {
      taken += sizeof(std::uint32_t) + message.size();
      expect(!message.empty());
    }
  }
  expect(taken <= arrived);

  const std::vector<std::string> blobs = split_strings(text_of(input));
  if (!blobs.empty()) expect(split_strings(join_strings(blobs)) == blobs);
}

std::vector<std::string> seeds() {
  std::string frames;
  append_control_frame(frames, "a message");
  append_control_frame(frames, std::string(300, 'x'));
  append_goodbye(frames);
  std::string bites;
  for (std::size_t at = 0; at < frames.size(); at += 100) {
    const std::string bite = frames.substr(at, 100);
    bites += static_cast<char>(bite.size() - 1);
    bites += bite;
  }
  return {bites, join_strings({"one", "", "three"})};
}

}  // namespace pith::fuzz
