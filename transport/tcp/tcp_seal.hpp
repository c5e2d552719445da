// Encryption of one TCP stream, between its socket and TcpOutbox or TcpReader. What they write and
// read is then a sequence of records:
//
//   length of the ciphertext (4 bytes, little-endian), ciphertext, tag (16 bytes)
//
// A record that was changed, repeated, left out or moved is not authentic (see Aead). One that was
// cut off has no end, and the stream no goodbye, which is encrypted as well.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "crypto/aead.hpp"
#include "transport/handshake.hpp"

namespace pith {

inline constexpr std::size_t seal_record_bytes = std::size_t{16} << 10;  // of ciphertext at most
// Room for the records that one system call writes or reads.
inline constexpr std::size_t seal_records = 4;
inline constexpr std::size_t seal_buffer_bytes =
    seal_records * (sizeof(std::uint32_t) + seal_record_bytes + Aead::tag_bytes);

// A walk through the bytes of one or two parts.
class PartCursor {
 public:
  explicit PartCursor(std::span<const iovec> parts);
  std::size_t left() const { return parts_[0].iov_len + parts_[1].iov_len; }
  // Both are valid until the next call of cut(), which takes the next `bytes` off.
  std::span<const iovec> rest() const;
  std::span<const iovec> cut(std::size_t bytes);

 private:
  std::array<iovec, 2> parts_{};
  std::array<iovec, 2> cut_{};
};

// The sending direction. Knows no socket.
class TcpSealer {
 public:
  explicit TcpSealer(Aead aead);

  // Ciphertext to be written next; empty where OpenSSL fails. `parts`: what is to be sent, from the
  // first byte on that wrote() has not counted yet. Until it counts them, the same bytes must come
  // again, in whatever memory.
  std::span<const std::byte> next(std::span<const iovec> parts);
  // `bytes` of next() are on the wire; returns how many plain bytes are with them, if all are.
  std::size_t wrote(std::size_t bytes);

 private:
  Aead aead_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t plain_ = 0;  // bytes in the buffer's records
};

// The receiving direction. Knows no socket.
class TcpOpener {
 public:
  explicit TcpOpener(Aead aead);

  // Where to read ciphertext, once take() has left nothing but the beginning of a record.
  std::span<std::byte> room();
  void arrived(std::size_t bytes) { end_ += bytes; }
  // Decrypts what is complete, as far as there is room for it.
  void take(PartCursor& into);
  // Whether take() has something to do, so that it must not wait for the socket.
  bool holds() const;
  // Null, or what is wrong with what has come.
  const char* fault() const { return fault_; }

 private:
  std::size_t complete() const;
  void open_record(std::size_t bytes, std::span<const iovec> into);

  Aead aead_;
  const char* fault_ = nullptr;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::unique_ptr<std::byte[]> plain_;  // of a record for which there was less room
  std::size_t plain_begin_ = 0;
  std::size_t plain_end_ = 0;
};

// Both directions, on a socket.
class TcpSeal {
 public:
  static Expected<std::unique_ptr<TcpSeal>> create(const ConnectionKeys& keys);

  // As sendmsg() and readv() without blocking, with errno. A byte counts as written when the kernel
  // has its whole record, so nothing is left here that only a later call could send; until then the
  // same bytes must be written again. EBADMSG: see fault().
  ssize_t write(int fd, std::span<const iovec> parts);
  ssize_t read(int fd, std::span<const iovec> parts);
  bool holds() const { return opener_.holds(); }
  const char* fault() const { return opener_.fault(); }

  // The record of the last bytes to be sent; empty where none can be sent.
  std::span<const std::byte> last(std::span<const iovec> parts);
  // What was being written does not come again: nothing more is written.
  void end_writing();

 private:
  TcpSeal(Aead sealing, Aead opening) : sealer_(std::move(sealing)), opener_(std::move(opening)) {}

  TcpSealer sealer_;
  TcpOpener opener_;
  // errno, to be told by the next call, as this one had bytes to tell of; 0: none.
  int write_error_ = 0;
  int read_error_ = 0;
};

// Tells a rank that hopes to go on over this connection (tcp_resumption.hpp) that it is lost here.
// Null keys: it is not encrypted.
void say_farewell(int fd, const ConnectionKeys* keys);

}  // namespace pith
