// Length-prefixed messages between ranks and the bootstrap root.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace pith {

struct BlobHeader {
  enum class Kind : std::uint32_t { data, failure };
  std::uint32_t size = 0;
  Kind kind = Kind::data;
};

inline constexpr std::uint32_t blob_bytes_max = 64u << 20;

inline void append_blob(std::string& out, std::string_view blob,
                        BlobHeader::Kind kind = BlobHeader::Kind::data) {
  const BlobHeader header{static_cast<std::uint32_t>(blob.size()), kind};
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  out.append(blob);
}

// Joins strings into one, and splits it again; split returns an empty vector for malformed text.
std::string join_strings(const std::vector<std::string>& strings);
std::vector<std::string> split_strings(std::string_view joined);

}  // namespace pith
