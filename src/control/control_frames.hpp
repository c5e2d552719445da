// Frames of a control connection: length-prefixed messages, and a goodbye at the end.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace pith {

inline constexpr std::uint32_t control_message_bytes_max = 64u << 20;

// An empty message is the goodbye: the end of the connection that follows is in order.
inline void append_control_frame(std::string& out, std::string_view message) {
  const auto size = static_cast<std::uint32_t>(message.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(message);
}

inline void append_goodbye(std::string& out) { append_control_frame(out, {}); }

// Reassembles messages from received bytes. Knows no socket.
class ControlFrames {
 public:
  enum class What : std::uint8_t { nothing, message, goodbye, too_long };

  void arrived(std::string_view bytes) {
    in_.erase(0, begin_);
    begin_ = 0;
    in_.append(bytes);
  }
  // The next complete message; `message` is valid until arrived() is called. Must not be called
  // after a goodbye or too_long.
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
