#include "transport/tcp/tcp_history.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace pith {

std::span<const std::byte> TcpHistory::from(std::uint64_t position) const {
  const auto left = static_cast<std::size_t>(end_ - position);
  if (left == 0) return {};
  const std::size_t at = place(position);
  return {ring_.data() + at, std::min(left, ring_.size() - at)};
}

// Of `bytes` that have just been sent, too, some may be acknowledged; they are kept all the same.
bool TcpHistory::make_room(std::size_t bytes, std::size_t unacknowledged) {
  constexpr std::size_t least = std::size_t{64} << 10;
  kept_ = std::min(kept_, std::max(unacknowledged, bytes) - bytes);
  const std::size_t wanted = kept_ + bytes;
  if (wanted <= ring_.size()) return true;
  try {
    TcpHistory longer;
    longer.ring_.resize(std::max(least, std::bit_ceil(wanted)));
    longer.end_ = end_ - kept_;
    while (longer.end_ < end_) {
      const std::span<const std::byte> next = from(longer.end_);
      const iovec part{const_cast<std::byte*>(next.data()), next.size()};
      longer.append({&part, 1}, next.size());
    }
    *this = std::move(longer);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void TcpHistory::forget(std::size_t bytes) {
  kept_ = 0;
  end_ += bytes;
}

void TcpHistory::append(std::span<const iovec> parts, std::size_t bytes) {
  for (const iovec& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    for (std::size_t left = std::min(bytes, part.iov_len); left > 0;) {
      const std::size_t at = place(end_);
      const std::size_t now = std::min(left, ring_.size() - at);
      std::memcpy(ring_.data() + at, from, now);
      from += now;
      end_ += now;
      kept_ += now;
      left -= now;
      bytes -= now;
    }
  }
}

}  // namespace pith
