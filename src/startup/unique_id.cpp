#include "startup/unique_id.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace pith {

namespace {

constexpr char magic[8] = {'p', 'i', 't', 'h', '-', 'i', 'd', '1'};
constexpr char magic_known_before[8] = {'p', 'i', 't', 'h', '-', 'i', 'd', 'k'};
constexpr char magic_members[8] = {'p', 'i', 't', 'h', '-', 'i', 'd', 'g'};
constexpr std::size_t address_at = sizeof magic + sizeof(Secret);
// Behind the address and its NUL; 0 in other ids.
constexpr std::size_t members_at = UniqueId::bytes - sizeof(int);

bool begins_with(std::span<const char> bytes, std::span<const char> magic_of_kind) {
  return std::memcmp(bytes.data(), magic_of_kind.data(), magic_of_kind.size()) == 0;
}

std::span<const char> magic_of(const UniqueId& id) {
  if (id.members > 0) return magic_members;
  return id.known_before ? magic_known_before : magic;
}

}  // namespace

Expected<UniqueId> UniqueId::load(std::span<const char, bytes> from) {
  UniqueId id;
  id.known_before = begins_with(from, magic_known_before);
  const bool grows = begins_with(from, magic_members);
  if (grows) std::memcpy(&id.members, from.data() + members_at, sizeof id.members);
  const auto text = from.subspan(address_at, members_at - address_at);
  const bool known = grows ? id.members > 0 : id.known_before || begins_with(from, magic);
  if (!known || text.back() != '\0') {  // the address must be NUL-terminated
    return Error(Code::invalid_argument,
                 "id is not one from pithGetUniqueId (all 128 bytes must be passed on)");
  }
  std::memcpy(id.secret.data(), from.data() + sizeof magic, sizeof(Secret));
  id.address.assign(text.begin(), std::find(text.begin(), text.end(), '\0'));
  return id;
}

Error UniqueId::store(std::span<char, bytes> to) const {
  constexpr std::size_t room = members_at - address_at - 1;
  if (address.size() > room) {
    return {
        Code::invalid_argument,
        fmt::format("the root's address is \"{}\", expected at most {} characters", address, room)};
  }
  std::fill(to.begin(), to.end(), '\0');
  std::ranges::copy(magic_of(*this), to.begin());
  std::memcpy(to.data() + sizeof magic, secret.data(), sizeof(Secret));
  std::memcpy(to.data() + address_at, address.data(), address.size());
  std::memcpy(to.data() + members_at, &members, sizeof members);
  return {};
}

}  // namespace pith
