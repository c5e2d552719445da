// How one stream goes on over another connection when its own has broken.
//
// Each end begins a connection by a greeting: how many bytes of the stream it has. The other end
// sends what follows these once more, then what is new, so nothing is lost and nothing comes twice,
// and what is above sees one sequence of bytes. Knows no socket.
//
// Streams of data begin their first connection so, too: where a connection breaks while the pair is
// being opened, the ends may not agree on which is the first.
//
// What the old connection has brought and nobody has read yet is kept here (`early`), because it
// has been acknowledged: the other end need not have it any more.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/tcp/tcp_history.hpp"

namespace pith {

class TcpResumption {
  static constexpr std::size_t greeting_bytes = 16;  // a mark and a position

 public:
  using Greeting = std::array<std::byte, greeting_bytes>;
  // Tells a rank that this one has given it up.
  static Greeting farewell();

  // See TcpHistory::add(). Precondition: !is_behind(). While some are ahead(), no more than these.
  template <class Unacknowledged>
  void wrote(std::span<const iovec> parts, std::size_t bytes, Unacknowledged unacknowledged) {
    history_.add(parts, bytes, unacknowledged);
    resent_ = history_.end();
    ahead_ -= std::min(ahead_, bytes);
  }
  // `bytes` of the stream have been read.
  void received(std::size_t bytes) { received_ += bytes; }
  // See TcpHistory::rest().
  template <class Unacknowledged>
  void rest(Unacknowledged unacknowledged) {
    if (!suspended_ && !is_behind()) history_.rest(unacknowledged);
  }
  // The connection has broken for the reason `cause`, an errno or 0.
  void suspend(int cause);
  bool suspended() const { return suspended_; }
  int cause() const { return cause_; }
  // There will be no other connection: what has come early is all that is left.
  void give_up();
  bool given_up() const { return given_up_; }
  // Room for what an ending connection brings, and how much came. Throws std::bad_alloc.
  std::span<std::byte> early_room(std::size_t bytes);
  void came_early(std::size_t bytes) { early_end_ += bytes; }
  // Begins the first connection, or goes on over another one.
  void begin_connection();

  // What is to be written before anything new, in pieces; empty if there is nothing, or the peer's
  // greeting is awaited first.
  std::span<const std::byte> to_send() const;
  bool awaits_greeting() const { return greeting_in_ < greeting_bytes; }
  // Nothing new may be written yet.
  bool is_behind() const { return awaits_greeting() || !to_send().empty(); }

  // Read the peer's greeting by get(bytes), as recv(), and write what goes before anything new by
  // put(bytes), as send(). Above 0: that is complete; 0: the peer has closed the connection; below:
  // errno, EBADMSG for a greeting with a fault(). `uncounted`: bytes that may have been sent
  // although wrote() has not been told of them yet.
  template <class Get>
  ssize_t read_greeting(Get get, std::size_t uncounted);
  template <class Get, class Put>
  ssize_t catch_up(Get get, Put put, std::size_t uncounted);
  // How many bytes these have moved, greetings included.
  std::uint64_t moved() const { return moved_; }
  // Null, or what is wrong with the peer's greeting.
  const char* fault() const { return fault_; }
  // Whether that is a farewell.
  bool dismissed() const { return dismissed_; }
  // How many of the bytes that are written next the other end has already.
  std::size_t ahead() const { return ahead_; }
  // Moves early bytes there; returns how many.
  std::size_t take_early(std::span<const iovec> into);
  bool holds() const { return early_taken_ < early_end_; }

 private:
  void sent(std::size_t bytes);
  void greeted(std::size_t bytes, std::size_t uncounted);
  const char* fault_in_greeting(std::size_t uncounted);

  TcpHistory history_;
  std::uint64_t received_ = 0;
  bool suspended_ = false;
  bool given_up_ = false;
  bool dismissed_ = false;
  int cause_ = 0;
  // None until begin_connection(): a first connection may do without.
  Greeting own_{};
  Greeting theirs_{};
  std::size_t greeting_out_ = greeting_bytes;
  std::size_t greeting_in_ = greeting_bytes;
  std::uint64_t resent_ = 0;  // up to here all has been sent over this connection, or need not be
  std::uint64_t moved_ = 0;
  std::size_t ahead_ = 0;
  std::vector<std::byte> early_;
  std::size_t early_taken_ = 0;
  std::size_t early_end_ = 0;
  const char* fault_ = nullptr;
};

template <class Get>
ssize_t TcpResumption::read_greeting(Get get, std::size_t uncounted) {
  while (!fault_ && awaits_greeting()) {
    const ssize_t got = get(std::span(theirs_).subspan(greeting_in_));
    if (got <= 0) return got;
    greeted(static_cast<std::size_t>(got), uncounted);
  }
  if (!fault_) return 1;
  errno = EBADMSG;
  return -1;
}

template <class Get, class Put>
ssize_t TcpResumption::catch_up(Get get, Put put, std::size_t uncounted) {
  while (is_behind()) {
    const std::span<const std::byte> next = to_send();
    const bool writes = !next.empty();
    const ssize_t moved = writes ? put(next) : read_greeting(get, uncounted);
    if (moved < 0 || (moved == 0 && !writes)) return moved;
    if (writes) sent(static_cast<std::size_t>(moved));
  }
  return 1;
}

}  // namespace pith
