#include "transport/tcp/tcp_seal.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "core/clock.hpp"
#include "transport/socket.hpp"
#include "transport/tcp/tcp_resumption.hpp"

namespace pith {
namespace {

using Length = std::uint32_t;
static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

constexpr std::size_t record_bytes(std::size_t plain) {
  return sizeof(Length) + plain + Aead::tag_bytes;
}

std::unique_ptr<std::byte[]> make_buffer(std::size_t bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(bytes);
}

void advance(iovec& part, std::size_t bytes) {
  part.iov_base = static_cast<std::byte*>(part.iov_base) + bytes;
  part.iov_len -= bytes;
}

ssize_t failed_with(int error) {
  errno = error;
  return -1;
}

}  // namespace

PartCursor::PartCursor(std::span<const iovec> parts) {
  std::copy_n(parts.begin(), std::min(parts.size(), parts_.size()), parts_.begin());
}

std::span<const iovec> PartCursor::rest() const {
  return std::span(parts_).subspan(parts_[0].iov_len == 0 ? 1 : 0);
}

std::span<const iovec> PartCursor::cut(std::size_t bytes) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::size_t here = std::min(bytes, parts_[i].iov_len);
    cut_[i] = {parts_[i].iov_base, here};
    if (here != 0) advance(parts_[i], here);
    bytes -= here;
  }
  return cut_;
}

// --- sending ------------------------------------------------------------------------------------

TcpSealer::TcpSealer(Aead aead) : aead_(std::move(aead)), buffer_(make_buffer(seal_buffer_bytes)) {}

std::span<const std::byte> TcpSealer::next(std::span<const iovec> parts) {
  if (begin_ == end_) {
    begin_ = end_ = plain_ = 0;
    PartCursor from(parts);
    for (std::size_t record = 0; record < seal_records && from.left() != 0; ++record) {
      const std::size_t bytes = std::min(from.left(), seal_record_bytes);
      const auto length = static_cast<Length>(bytes);
      std::byte* const to = buffer_.get() + end_;
      std::memcpy(to, &length, sizeof length);
      if (!aead_.seal({to, sizeof length}, from.cut(bytes), to + sizeof length)) return {};
      end_ += record_bytes(bytes);
      plain_ += bytes;
    }
  }
  return {buffer_.get() + begin_, end_ - begin_};
}

std::size_t TcpSealer::wrote(std::size_t bytes) {
  begin_ += bytes;
  return begin_ == end_ ? std::exchange(plain_, 0) : 0;
}

// --- receiving ----------------------------------------------------------------------------------

TcpOpener::TcpOpener(Aead aead)
    : aead_(std::move(aead)),
      buffer_(make_buffer(seal_buffer_bytes)),
      plain_(make_buffer(seal_record_bytes)) {}

std::span<std::byte> TcpOpener::room() {
  if (begin_ != 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  return {buffer_.get() + end_, seal_buffer_bytes - end_};
}

// Plain bytes of the first record, if all of it has come; an impossible number if it has one.
std::size_t TcpOpener::complete() const {
  Length length = 0;
  if (end_ - begin_ < sizeof length) return 0;
  std::memcpy(&length, buffer_.get() + begin_, sizeof length);
  if (length == 0 || length > seal_record_bytes) return seal_record_bytes + 1;
  return end_ - begin_ < record_bytes(length) ? 0 : length;
}

bool TcpOpener::holds() const { return plain_begin_ != plain_end_ || fault_ || complete() != 0; }

void TcpOpener::take(PartCursor& into) {
  while (into.left() != 0 && !fault_) {
    if (const std::size_t kept = plain_end_ - plain_begin_; kept != 0) {
      for (const iovec& part : into.cut(std::min(kept, into.left()))) {
        if (part.iov_len == 0) continue;
        std::memcpy(part.iov_base, plain_.get() + plain_begin_, part.iov_len);
        plain_begin_ += part.iov_len;
      }
      continue;
    }
    const std::size_t bytes = complete();
    if (bytes == 0) return;
    if (bytes > seal_record_bytes) {
      fault_ = "an encrypted record of impossible length";
    } else if (bytes <= into.left()) {
      open_record(bytes, into.cut(bytes));
    } else {
      const iovec whole{plain_.get(), bytes};
      open_record(bytes, {&whole, 1});
      plain_begin_ = 0;
      plain_end_ = fault_ ? 0 : bytes;
    }
  }
}

void TcpOpener::open_record(std::size_t bytes, std::span<const iovec> into) {
  const std::byte* const record = buffer_.get() + begin_;
  const std::span<const std::byte> sealed(record + sizeof(Length), bytes + Aead::tag_bytes);
  if (!aead_.open({record, sizeof(Length)}, sealed, into)) {
    fault_ = "an encrypted record that is not authentic";
  }
  begin_ += record_bytes(bytes);
}

// --- both, on a socket --------------------------------------------------------------------------

Expected<std::unique_ptr<TcpSeal>> TcpSeal::create(const ConnectionKeys& keys) {
  Expected<Aead> sealing = Aead::create(Aead::Use::seal, keys.sending);
  if (!sealing) return sealing.error();
  Expected<Aead> opening = Aead::create(Aead::Use::open, keys.receiving);
  if (!opening) return opening.error();
  try {
    return std::unique_ptr<TcpSeal>(new TcpSeal(std::move(*sealing), std::move(*opening)));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

ssize_t TcpSeal::write(int fd, std::span<const iovec> parts) {
  PartCursor from(parts);
  std::size_t written = 0;
  int error = write_error_;
  while (from.left() != 0 && error == 0) {
    const std::span<const std::byte> bytes = sealer_.next(from.rest());
    const ssize_t sent = bytes.empty()
                             ? failed_with(EIO)
                             : ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      error = errno;
      break;
    }
    const std::size_t counted = sealer_.wrote(static_cast<std::size_t>(sent));
    from.cut(counted);
    written += counted;
    if (static_cast<std::size_t>(sent) < bytes.size()) error = EAGAIN;
  }
  if (error != 0 && !would_block(error)) write_error_ = error;
  return written == 0 ? failed_with(error) : static_cast<ssize_t>(written);
}

ssize_t TcpSeal::read(int fd, std::span<const iovec> parts) {
  PartCursor into(parts);
  const std::size_t wanted = into.left();
  for (bool drained = false;;) {
    opener_.take(into);
    if (opener_.fault()) return failed_with(EBADMSG);
    const std::size_t done = wanted - into.left();
    if (done == wanted || (drained && done != 0)) return static_cast<ssize_t>(done);
    if (drained) return failed_with(EAGAIN);
    if (read_error_ != 0) return failed_with(read_error_);
    const std::span<std::byte> room = opener_.room();
    const ssize_t got = ::recv(fd, room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0 && !would_block(errno)) read_error_ = errno;
    if (got <= 0) return done != 0 ? static_cast<ssize_t>(done) : got;
    opener_.arrived(static_cast<std::size_t>(got));
    drained = static_cast<std::size_t>(got) < room.size();
  }
}

std::span<const std::byte> TcpSeal::last(std::span<const iovec> parts) {
  if (write_error_ != 0) return {};
  return sealer_.next(parts);
}

void TcpSeal::end_writing() { write_error_ = EPIPE; }

void say_farewell(int fd, const ConnectionKeys* keys) {
  const TcpResumption::Greeting farewell = TcpResumption::farewell();
  const iovec part{const_cast<std::byte*>(farewell.data()), farewell.size()};
  std::span<const std::byte> said = farewell;
  Expected<std::unique_ptr<TcpSeal>> seal = std::unique_ptr<TcpSeal>();
  if (keys) {
    seal = TcpSeal::create(*keys);
    said = seal ? (*seal)->last({&part, 1}) : std::span<const std::byte>();
  }
  static_cast<void>(send_all(fd, said, monotonic_ns()));
}

}  // namespace pith
