// A small picture with few colours: lines and text, written as a PNG file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pith::demo {

struct Colour {
  std::uint8_t red;
  std::uint8_t green;
  std::uint8_t blue;
};

class Picture {
 public:
  static constexpr int glyph_width = 6;  // of a character at scale 1, including the gap
  static constexpr int glyph_height = 7;

  // Filled with colour 0. Pixels are indices into `palette`, which has at most 256 colours.
  Picture(int width, int height, std::vector<Colour> palette);

  // Pixels outside are not drawn.
  void point(int x, int y, std::uint8_t colour);
  void box(int x, int y, int width, int height, std::uint8_t colour);
  void line(double x0, double y0, double x1, double y1, int thickness, std::uint8_t colour);
  // From the upper left corner; digits, letters and common marks, others are blank.
  void text(int x, int y, std::string_view text, int scale, std::uint8_t colour);

  // Throws std::runtime_error if the file cannot be written.
  void write_png(const std::string& path) const;

 private:
  int width_;
  int height_;
  std::vector<Colour> palette_;
  std::vector<std::uint8_t> pixels_;  // row by row
};

}  // namespace pith::demo
