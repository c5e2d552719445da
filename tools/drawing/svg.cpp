#include "tools/drawing/svg.hpp"

namespace pith_drawing {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) >= ' ') {
      out += c;
    }
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view style) {
  add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
      R"(viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="12">)"
      "\n<style>\n{2}\n</style>\n"
      R"(<rect width="100%" height="100%" fill="#fff"/>)"
      "\n",
      width, height, style);
}

std::string Svg::take() {
  text_ += "</svg>\n";
  return std::exchange(text_, {});
}

}  // namespace pith_drawing
