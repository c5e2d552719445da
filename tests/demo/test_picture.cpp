// The PNG file that the demo writes, as its format says it: sizes, order of chunks, pixels.
#include "tools/demo/picture.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace {

using pith::demo::Picture;

std::string file_of(const Picture& picture) {
  const std::string path = "/tmp/pith-picture-" + std::to_string(getpid()) + ".png";
  picture.write_png(path);
  std::ifstream stream(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  std::remove(path.c_str());
  return bytes;
}

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word = word << 8U | static_cast<unsigned char>(bytes[at + i]);
  return word;
}

}  // namespace

TEST_CASE("the demo's picture is a PNG file with its pixels") {
  Picture picture(3, 2, {{255, 255, 255}, {1, 2, 3}});
  picture.point(1, 0, 1);
  picture.box(0, 1, 10, 10, 1);  // what is outside is left out
  const std::string bytes = file_of(picture);
  REQUIRE(bytes.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  REQUIRE(word_at(bytes, 16) == 3);
  REQUIRE(word_at(bytes, 20) == 2);
  std::vector<std::string> chunks;
  for (std::size_t at = 8; at < bytes.size(); at += 12 + word_at(bytes, at)) {
    chunks.push_back(bytes.substr(at + 4, 4));
  }
  REQUIRE(chunks == std::vector<std::string>{"IHDR", "PLTE", "IDAT", "IEND"});
  // Two rows, each after its filter's number, in one stored block.
  REQUIRE(bytes.find(std::string("\0\0\1\0\0\1\1\1", 8)) != std::string::npos);
  REQUIRE(word_at(bytes, bytes.size() - 4) == 0xae426082U);  // of IEND, as in every PNG file
}

TEST_CASE("a picture that cannot be written says where") {
  REQUIRE_THROWS_WITH(Picture(1, 1, {{0, 0, 0}}).write_png("/nowhere/x.png"),
                      ContainsSubstring("/nowhere/x.png"));
}
