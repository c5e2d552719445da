// What test messages contain, made and compared by words: loops over bytes took most of the time of
// these tests under a sanitizer, which checks every access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace pith::test {

// Another seed has other contents at all offsets; a shorter message is the beginning of a longer
// one.
inline std::vector<std::byte> contents(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  std::uint64_t word = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::size_t at = 0; at < bytes; at += sizeof word) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    if (bytes - at >= sizeof word) {
      std::memcpy(data.data() + at, &word, sizeof word);
    } else {
      std::memcpy(data.data() + at, &word, bytes - at);
    }
  }
  return data;
}

// std::vector's == compares one std::byte after the other.
inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace pith::test
