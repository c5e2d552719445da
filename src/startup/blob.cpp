#include "startup/blob.hpp"

namespace pith {

std::string join_strings(const std::vector<std::string>& strings) {
  std::string joined;
  for (const std::string& text : strings) append_blob(joined, text);
  return joined;
}

std::vector<std::string> split_strings(std::string_view joined) {
  std::vector<std::string> strings;
  while (!joined.empty()) {
    BlobHeader header;
    if (joined.size() < sizeof header) return {};
    std::memcpy(&header, joined.data(), sizeof header);
    joined.remove_prefix(sizeof header);
    if (joined.size() < header.size) return {};
    strings.emplace_back(joined.substr(0, header.size));
    joined.remove_prefix(header.size);
  }
  return strings;
}

}  // namespace pith
