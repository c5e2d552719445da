// Bytes as hexadecimal digits, as published answers are printed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace pith::test {

inline std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    text += digits[std::to_integer<std::size_t>(byte >> 4)];
    text += digits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

}  // namespace pith::test
