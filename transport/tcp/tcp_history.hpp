// What a stream has sent and the other end may lack, so that it can be sent again when the
// connection has broken. Knows of a socket only how much of it is unacknowledged.
//
// A kernel that has acknowledged bytes hands them to its process, also after the connection has
// been reset. So what this end's kernel has not seen acknowledged is enough, unless something
// between the ranks acknowledges in the peer's name (a proxy); then has() tells that bytes are
// gone.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace pith {

class TcpHistory {
 public:
  // The first `bytes` of `parts` have been sent; `unacknowledged`: a function that returns how many
  // of the last bytes sent may lack an acknowledgement (at least), called now and then. Where there
  // is no memory to keep them, nothing before end() can be sent again.
  template <class Unacknowledged>
  void add(std::span<const iovec> parts, std::size_t bytes, Unacknowledged unacknowledged) {
    if (kept_ + bytes > ring_.size() && !make_room(bytes, unacknowledged())) return forget(bytes);
    append(parts, bytes);
  }
  // To be called now and then: gives the memory back if nothing has been sent since the last call
  // and all is acknowledged. Nothing before end() can be sent again then.
  template <class Unacknowledged>
  void rest(Unacknowledged unacknowledged) {
    const bool is_idle = std::exchange(looked_at_, end_) == end_;
    if (!is_idle || ring_.empty() || unacknowledged() != 0) return;
    ring_ = std::vector<std::byte>();
    kept_ = 0;
  }

  // Bytes sent since the stream began: where the next one stands.
  std::uint64_t end() const { return end_; }
  // Whether all bytes from this position on are here.
  bool has(std::uint64_t position) const { return position <= end_ && end_ - position <= kept_; }
  // Those from there on that lie in one piece; empty at the end. Precondition: has(position).
  std::span<const std::byte> from(std::uint64_t position) const;
  std::size_t memory_bytes() const { return ring_.size(); }

 private:
  bool make_room(std::size_t bytes, std::size_t unacknowledged);
  void forget(std::size_t bytes);
  void append(std::span<const iovec> parts, std::size_t bytes);
  std::size_t place(std::uint64_t position) const { return position & (ring_.size() - 1); }

  std::vector<std::byte> ring_;  // its size is a power of two; a byte lies at its position in it
  std::uint64_t end_ = 0;
  std::uint64_t looked_at_ = 0;  // end_ when rest() was called
  std::size_t kept_ = 0;
};

}  // namespace pith
