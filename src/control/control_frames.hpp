// What lies on a control connection: messages, each behind its length, and at last a goodbye.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace pith {

inline constexpr std::uint32_t control_message_bytes_max = 64u << 20;

// A message of no bytes says that its sender leaves; what follows it is the end.
inline void append_control_frame(std::string& out, std::string_view message) {
  const auto size = static_cast<std::uint32_t>(message.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(message);
}

inline void append_goodbye(std::string& out) { append_control_frame(out, {}); }

// Makes messages of what has arrived, however it was cut. Knows no socket.
class ControlFrames {
 public:
  enum class What : std::uint8_t { nothing, message, goodbye, too_long };

  void arrived(std::string_view bytes) {
    in_.erase(0, begin_);
    begin_ = 0;
    in_.append(bytes);
  }
  // The next one that is whole; `message` is good until more arrives. Not after a goodbye or a
  // message that is too long.
  What next(std::string_view& message) {
    std::uint32_t size = 0;
    if (in_.size() - begin_ < sizeof size) return What::nothing;
    std::memcpy(&size, in_.data() + begin_, sizeof size);
    if (size == 0) return What::goodbye;
    if (size > control_message_bytes_max) return What::too_long;
    if (in_.size() - begin_ - sizeof size < size) return What::nothing;
    message = std::string_view(in_).substr(begin_ + sizeof size, size);
    begin_ += sizeof size + size;
    return What::message;
  }

 private:
  std::string in_;
  std::size_t begin_ = 0;
};

}  // namespace pith
