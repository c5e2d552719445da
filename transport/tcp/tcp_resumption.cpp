#include "transport/tcp/tcp_resumption.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pith {
namespace {

constexpr std::uint64_t mark = 0x454D555345523A50;  // so that no frame is taken for a greeting
constexpr std::uint64_t no_position = ~std::uint64_t{0};  // in place of one: a farewell

TcpResumption::Greeting greeting_of(std::uint64_t position) {
  TcpResumption::Greeting greeting;
  std::memcpy(greeting.data(), &mark, sizeof mark);
  std::memcpy(greeting.data() + sizeof mark, &position, sizeof position);
  return greeting;
}

}  // namespace

TcpResumption::Greeting TcpResumption::farewell() { return greeting_of(no_position); }

void TcpResumption::suspend(int cause) {
  cause_ = cause;
  suspended_ = true;
}

void TcpResumption::give_up() {
  suspended_ = false;
  given_up_ = true;
}

std::span<std::byte> TcpResumption::early_room(std::size_t bytes) {
  if (early_.size() < early_end_ + bytes) early_.resize(early_end_ + bytes);
  return std::span(early_).subspan(early_end_, bytes);
}

void TcpResumption::begin_connection() {
  suspended_ = false;
  own_ = greeting_of(received_ + early_end_ - early_taken_);
  greeting_out_ = greeting_in_ = 0;
  ahead_ = 0;
  resent_ = history_.end();
}

std::span<const std::byte> TcpResumption::to_send() const {
  if (greeting_out_ < greeting_bytes) return std::span(own_).subspan(greeting_out_);
  if (awaits_greeting() || resent_ >= history_.end()) return {};
  return history_.from(resent_);
}

void TcpResumption::sent(std::size_t bytes) {
  (greeting_out_ < greeting_bytes ? greeting_out_ : resent_) += bytes;
  moved_ += bytes;
}

void TcpResumption::greeted(std::size_t bytes, std::size_t uncounted) {
  greeting_in_ += bytes;
  moved_ += bytes;
  if (greeting_in_ == greeting_bytes) fault_ = fault_in_greeting(uncounted);
}

const char* TcpResumption::fault_in_greeting(std::size_t uncounted) {
  std::uint64_t said[2];
  std::memcpy(said, theirs_.data(), sizeof said);
  if (said[0] != mark) return "something else than how much it has";
  dismissed_ = said[1] == no_position;
  if (dismissed_) return "that it has given this rank up";
  if (said[1] > history_.end() + uncounted) return "that it has more than was sent";
  if (said[1] > history_.end()) {
    ahead_ = static_cast<std::size_t>(said[1] - history_.end());
    return nullptr;
  }
  if (!history_.has(said[1])) return "that it lacks bytes which have been acknowledged in its name";
  resent_ = said[1];
  return nullptr;
}

std::size_t TcpResumption::take_early(std::span<const iovec> into) {
  std::size_t moved = 0;
  for (const iovec& part : into) {
    const std::size_t now = std::min(part.iov_len, early_end_ - early_taken_);
    if (now == 0) break;
    std::memcpy(part.iov_base, early_.data() + early_taken_, now);
    early_taken_ += now;
    moved += now;
  }
  if (!holds() && early_end_ != 0) {
    early_ = {};
    early_taken_ = early_end_ = 0;
  }
  return moved;
}

}  // namespace pith
