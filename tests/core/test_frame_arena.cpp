#include <cstdint>
#include <cstring>
#include <vector>

#include "core/frame_arena.hpp"
#include "tests/catch.hpp"

namespace pith::test {

TEST_CASE("frames of one size class are used again", "[arena]") {
  FrameArena arena;
  void* first = arena.allocate(200);
  CHECK(arena.live() == 1);
  FrameArena::free(first);
  CHECK(arena.live() == 0);
  CHECK(arena.allocate(129) == first);
  void* other = arena.allocate(200);
  CHECK(other != first);
  FrameArena::free(first);
  FrameArena::free(other);
}

TEST_CASE("frames are aligned and apart, up to the largest", "[arena]") {
  FrameArena arena;
  std::vector<std::pair<void*, std::size_t>> frames;
  for (std::size_t bytes = 1; bytes < 20000; bytes += 61) {
    void* frame = arena.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(frame) % 16 == 0);
    std::memset(frame, static_cast<int>(frames.size() & 0xff), bytes);
    frames.emplace_back(frame, bytes);
  }
  CHECK(arena.live() == frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(frames[i].first);
    CHECK(bytes[0] == (i & 0xff));
    CHECK(bytes[frames[i].second - 1] == (i & 0xff));
    FrameArena::free(frames[i].first);
  }
  CHECK(arena.live() == 0);
}

}  // namespace pith::test
