// What ends a saved state, as src/compress/saved_state.cpp computes it: for states that are changed
// and whole all the same.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "core/mix.hpp"

namespace pith::test {

inline void append_checksum(std::string& bytes) {
  std::uint64_t hash = mix(0x6572706d6f437450, bytes.size());
  std::size_t at = 0;
  for (; at + sizeof hash <= bytes.size(); at += sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    hash = mix(hash, word);
  }
  for (; at < bytes.size(); ++at) hash = mix(hash, static_cast<unsigned char>(bytes[at]));
  bytes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
}

}  // namespace pith::test
