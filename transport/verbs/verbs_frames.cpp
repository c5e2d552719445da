#include "transport/verbs/verbs_frames.hpp"

#include <cstring>
#include <type_traits>

namespace pith {
namespace {

struct AddressHead {
  std::uint32_t version = wire_version;
  std::uint32_t window = 0;
  std::uint32_t rails = 0;
  std::uint32_t ranks = 0;
};

template <class T>
void append(std::string& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool take(std::string_view& bytes, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return true;
}

std::size_t payload_of(VerbsKind kind) {
  if (kind == VerbsKind::grant) return sizeof(VerbsKeys);
  if (kind == VerbsKind::restart) return sizeof(VerbsRestart);
  return 0;
}

const char* fault_of_payload(const VerbsHead& head, std::size_t bytes) {
  const Header& header = head.header;
  if (header.version != wire_version) return "a message of another wire version";
  if (header.length > message_bytes_max) return "a message that is too long";
  if (head.kind == VerbsKind::announce) {
    return bytes == 0 && header.length != 0 ? nullptr : "an announcement of nothing";
  }
  if (head.kind == VerbsKind::message) {
    return bytes == header.length ? nullptr : "a message that is not whole";
  }
  if (bytes == 0) return "an empty piece";
  if (head.offset > header.length || bytes > header.length - head.offset) {
    return "a piece outside its message";
  }
  return nullptr;
}

}  // namespace

const char* fault_of(const VerbsHead& head, std::size_t bytes) {
  if (head.version != wire_version) return "a frame of another wire version";
  if (head.zero != 0) return "a frame that makes no sense";
  switch (head.kind) {
    case VerbsKind::message:
    case VerbsKind::piece:
    case VerbsKind::announce:
      return fault_of_payload(head, bytes);
    case VerbsKind::portion:
      return bytes != 0 ? nullptr : "an empty portion";
    case VerbsKind::grant:
    case VerbsKind::dropped:
    case VerbsKind::withdrawn:
    case VerbsKind::restart:
    case VerbsKind::credit:
    case VerbsKind::goodbye:
    case VerbsKind::farewell:
      return bytes == payload_of(head.kind) ? nullptr : "a frame of a wrong length";
  }
  return "a frame of unknown kind";
}

std::string VerbsAddress::pack() const {
  std::string bytes;
  append(bytes, AddressHead{wire_version, window, static_cast<std::uint32_t>(rails.size()),
                            static_cast<std::uint32_t>(ends.size())});
  for (const VerbsPlace& rail : rails) append(bytes, rail);
  for (const Ends& of_rank : ends) {
    append(bytes, of_rank.control);
    for (std::size_t r = 0; r < rails.size(); ++r) {
      append(bytes, r < of_rank.data.size() ? of_rank.data[r] : VerbsEnd());
    }
  }
  return bytes;
}

Expected<VerbsAddress> VerbsAddress::unpack(std::string_view bytes, int rank) {
  const Error wrong(Code::internal, "bytes that are no verbs address");
  AddressHead head;
  const auto wanted = static_cast<std::size_t>(rank);
  if (!take(bytes, head) || head.version != wire_version) return wrong;
  if (head.rails == 0 || head.rails > verbs_rails_max || wanted >= head.ranks) return wrong;
  const std::size_t ends_bytes = sizeof(VerbsEnd) * (1 + head.rails);
  if (bytes.size() != head.rails * sizeof(VerbsPlace) + head.ranks * ends_bytes) return wrong;
  VerbsAddress address;
  address.window = head.window;
  address.rails.resize(head.rails);
  for (VerbsPlace& rail : address.rails) take(bytes, rail);
  bytes.remove_prefix(wanted * ends_bytes);
  Ends& ends = address.ends.emplace_back();
  take(bytes, ends.control);
  ends.data.resize(head.rails);
  for (VerbsEnd& end : ends.data) take(bytes, end);
  if (ends.control.number == 0) return wrong;
  return address;
}

}  // namespace pith
