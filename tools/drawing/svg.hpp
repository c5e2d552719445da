// An SVG picture as text that grows.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace pith_drawing {

// Text as it may stand in an element or an attribute; control characters are left out.
std::string escaped(std::string_view text);

class Svg {
 public:
  // Opens a white picture. `style` is CSS.
  Svg(double width, double height, std::string_view style);

  // Text in the arguments must be escaped.
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void add_text(std::string_view text) { text_ += text; }
  // Closes the picture, which is then empty.
  std::string take();

 private:
  std::string text_;
};

}  // namespace pith_drawing
