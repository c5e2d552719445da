// A pithUniqueId as a user hands it over, and the address in it.
#include <cstring>

#include "fuzz_target.hpp"
#include "startup/unique_id.hpp"
#include "transport/socket.hpp"

namespace pith::fuzz {

void run(std::span<const std::uint8_t> input) {
  std::array<char, UniqueId::bytes> bytes{};
  std::memcpy(bytes.data(), input.data(), std::min(input.size(), bytes.size()));
  const Expected<UniqueId> id = UniqueId::load(bytes);
  if (!id) return;
  expect(id->address.size() < UniqueId::bytes);
  const Expected<Address> address = parse_address(id->address);
  if (address) expect(static_cast<bool>(parse_address(format_address(*address))));
  std::array<char, UniqueId::bytes> again{};
  expect(!id->store(again));
  const Expected<UniqueId> same = UniqueId::load(again);
  expect(same && same->secret == id->secret && same->address == id->address);
  expect(same->members == id->members && same->known_before == id->known_before);
}

std::vector<std::string> seeds() {
  std::vector<std::string> seeds;
  for (const char* address : {"127.0.0.1:5000", "[::1]:65535", "[fe80::1%1]:1"}) {
    UniqueId id;
    id.address = address;
    id.members = static_cast<int>(seeds.size());
    id.secret[3] = std::byte{7};
    std::array<char, UniqueId::bytes> bytes{};
    id.store(bytes);
    seeds.emplace_back(bytes.data(), bytes.size());
  }
  return seeds;
}

}  // namespace pith::fuzz
