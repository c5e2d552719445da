// Where another process's descriptors of device memory arrive: a datagram socket with an abstract
// name, which nothing can leave behind in a file system.
//
// Why not by pidfd_getfd: that needs the right to trace the other process, which Yama takes away on
// most systems, even between processes of one user. And not by the sockets of the shm transport,
// which only some communicators have, and which the progress thread reads.
// Whoever sends knows a secret that notes between the ranks brought: anybody on the host may read
// the names of sockets. Who asks for descriptors expects them first; what nobody expects is closed.
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

// An open descriptor; -1: none.
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

// How much of the memory behind a descriptor is meant.
struct MemoryPart {
  OwnedDescriptor descriptor;
  std::uint64_t bytes = 0;
};

class DescriptorSocket {
 public:
  static constexpr std::size_t most_in_message = 64;

  // What is to be known to send there; 0, 0: nothing.
  struct Address {
    std::uint64_t name = 0;
    std::uint64_t secret = 0;
  };
  // Parts of one allocation, all of which are named by the slot.
  struct Key {
    std::uint64_t secret = 0;
    std::uint32_t slot = 0;
    auto operator<=>(const Key&) const = default;
  };

  static Expected<std::unique_ptr<DescriptorSocket>> open();
  std::uint64_t name() const { return name_; }

  void expect(const Key& key, std::size_t parts);
  // Closes what has come all the same.
  void expect_no_more(const Key& key);
  // All parts in order, or none while some have not come. Does not wait.
  std::vector<MemoryPart> take(const Key& key);

  enum class Sent { all, not_now, nobody_there };
  // One message with the parts from `first` on, which are `most_in_message` or fewer. Does not
  // wait.
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
