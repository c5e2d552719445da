// Receives file descriptors of another process's device memory: a datagram socket with an abstract
// name, which leaves nothing behind in a file system.
//
// Why not pidfd_getfd: it needs the right to trace the other process, which Yama denies on most
// systems even between processes of one user. Why not the shm transport's sockets: only some
// communicators have them, and the progress thread reads them.
// A sender proves itself by a secret that it got in a note between the ranks, for anyone on the
// host can read the names of sockets. The receiver registers the key first; descriptors with
// another key are closed.
// Threads: any.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace pith::cuda {

// Owns a file descriptor; -1: none.
class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd = -1) : fd_(fd) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedDescriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// A descriptor, and the size of the memory behind it.
struct MemoryPart {
  OwnedDescriptor descriptor;
  std::uint64_t bytes = 0;
};

class DescriptorSocket {
 public:
  static constexpr std::size_t most_in_message = 64;

  // Where to send and the secret to show; 0, 0: no socket.
  struct Address {
    std::uint64_t name = 0;
    std::uint64_t secret = 0;
  };
  // Names all parts of one allocation.
  struct Key {
    std::uint64_t secret = 0;
    std::uint32_t slot = 0;
    auto operator<=>(const Key&) const = default;
  };

  static Expected<std::unique_ptr<DescriptorSocket>> open();
  std::uint64_t name() const { return name_; }

  void expect(const Key& key, std::size_t parts);
  // Also closes descriptors that have arrived.
  void expect_no_more(const Key& key);
  // All parts in order, or an empty vector until all have arrived. Does not block.
  std::vector<MemoryPart> take(const Key& key);

  enum class Sent { all, not_now, nobody_there };
  // Sends `parts`, at most `most_in_message`, as number `first` and following, in one message. Does
  // not block.
  static Sent send(const Address& to, std::uint32_t slot, std::size_t first,
                   std::span<const MemoryPart> parts);

 private:
  DescriptorSocket(OwnedDescriptor socket, std::uint64_t name)
      : socket_(std::move(socket)), name_(name) {}
  void receive_all();
  bool receive();

  const OwnedDescriptor socket_;
  const std::uint64_t name_;
  std::mutex mutex_;
  std::map<Key, std::vector<MemoryPart>> expected_;
};

}  // namespace pith::cuda
