#include "startup/unique_id.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace pith {

namespace {

constexpr char magic[8] = {'p', 'i', 't', 'h', '-', 'i', 'd', '1'};
constexpr char magic_known_before[8] = {'p', 'i', 't', 'h', '-', 'i', 'd', 'k'};
constexpr std::size_t address_at = sizeof magic + sizeof(Secret);

}  // namespace

Expected<UniqueId> UniqueId::load(std::span<const char, bytes> from) {
  const bool known_before =
      std::memcmp(from.data(), magic_known_before, sizeof magic_known_before) == 0;
  const bool known = known_before || std::memcmp(from.data(), magic, sizeof magic) == 0;
  if (!known || from.back() != '\0') {  // the address must be NUL-terminated
    return Error(Code::invalid_argument,
                 "id is not one from pithGetUniqueId (all 128 bytes must be passed on)");
  }
  UniqueId id;
  id.known_before = known_before;
  std::memcpy(id.secret.data(), from.data() + sizeof magic, sizeof(Secret));
  const auto text = from.subspan(address_at);
  id.address.assign(text.begin(), std::find(text.begin(), text.end(), '\0'));
  return id;
}

Error UniqueId::store(std::span<char, bytes> to) const {
  constexpr std::size_t room = bytes - address_at - 1;
  if (address.size() > room) {
    return {
        Code::invalid_argument,
        fmt::format("the root's address is \"{}\", expected at most {} characters", address, room)};
  }
  std::fill(to.begin(), to.end(), '\0');
  std::memcpy(to.data(), known_before ? magic_known_before : magic, sizeof magic);
  std::memcpy(to.data() + sizeof magic, secret.data(), sizeof(Secret));
  std::memcpy(to.data() + address_at, address.data(), address.size());
  return {};
}

}  // namespace pith
