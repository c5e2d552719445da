#include "cuda/descriptor_socket.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/descriptor_limit.hpp"
#include "crypto/random_bytes.hpp"

namespace pith::cuda {

namespace {

struct Message {
  std::uint64_t secret = 0;
  std::uint32_t slot = 0;
  std::uint32_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes[DescriptorSocket::most_in_message] = {};
};

constexpr std::size_t most_control = DescriptorSocket::most_in_message * sizeof(int);
using Control = std::array<std::byte, CMSG_SPACE(most_control)>;

OwnedDescriptor make_socket() {
  return OwnedDescriptor(
      open_with_room([] { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
}

socklen_t address_of_socket(std::uint64_t name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  const std::string text = fmt::format("pith-memory-{:016x}", name);
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

// Takes ownership before the message is checked: once read, the descriptors are ours to close.
std::vector<OwnedDescriptor> descriptors_in(msghdr& header) {
  std::vector<OwnedDescriptor> all;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return all;
  const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof fd, sizeof fd);
    all.emplace_back(fd);
  }
  return all;
}

}  // namespace

OwnedDescriptor::~OwnedDescriptor() {
  if (fd_ >= 0) close(fd_);
}

Expected<std::unique_ptr<DescriptorSocket>> DescriptorSocket::open() {
  std::uint64_t name = 0;
  if (Error error = fill_random(std::as_writable_bytes(std::span(&name, 1)))) return error;
  OwnedDescriptor fd = make_socket();
  sockaddr_un address;
  const socklen_t length = address_of_socket(name, address);
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return system_error("a socket for device memory of other processes", errno);
  }
  return std::unique_ptr<DescriptorSocket>(new DescriptorSocket(std::move(fd), name));
}

void DescriptorSocket::expect(const Key& key, std::size_t parts) {
  const std::lock_guard lock(mutex_);
  expected_.try_emplace(key, parts);
}

void DescriptorSocket::expect_no_more(const Key& key) {
  const std::lock_guard lock(mutex_);
  expected_.erase(key);
  receive_all();
}

std::vector<MemoryPart> DescriptorSocket::take(const Key& key) {
  const std::lock_guard lock(mutex_);
  receive_all();
  const auto found = expected_.find(key);
  if (found == expected_.end()) return {};
  const auto is_there = [](const MemoryPart& part) { return static_cast<bool>(part.descriptor); };
  if (!std::all_of(found->second.begin(), found->second.end(), is_there)) return {};
  std::vector<MemoryPart> parts = std::move(found->second);
  expected_.erase(found);
  return parts;
}

// Bounded, so that a process which sends without end cannot keep this thread busy.
void DescriptorSocket::receive_all() {
  constexpr int most = 128;
  for (int messages = 0; messages < most && receive(); ++messages) {
  }
}

// Returns false if no message was waiting. A part that comes twice replaces the first.
bool DescriptorSocket::receive() {
  Message message;
  iovec part = {&message, sizeof message};
  alignas(cmsghdr) Control control{};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = CMSG_LEN(most_control);
  // Descriptors for which the process has no room would be lost.
  make_descriptor_room(most_in_message);
  const ssize_t length = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (length < 0) return errno == EINTR;
  std::vector<OwnedDescriptor> descriptors = descriptors_in(header);
  const bool whole = static_cast<std::size_t>(length) == sizeof message &&
                     (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                     message.count == descriptors.size();
  const auto found = expected_.find({message.secret, message.slot});
  if (!whole || found == expected_.end()) return true;
  std::vector<MemoryPart>& parts = found->second;
  if (message.first > parts.size() || message.count > parts.size() - message.first) return true;
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    parts[message.first + i] = {std::move(descriptors[i]), message.bytes[i]};
  }
  return true;
}

DescriptorSocket::Sent DescriptorSocket::send(const Address& to, std::uint32_t slot,
                                              std::size_t first,
                                              std::span<const MemoryPart> parts) {
  const OwnedDescriptor fd = make_socket();
  if (!fd) return Sent::not_now;
  Message message;
  message.secret = to.secret;
  message.slot = slot;
  message.first = static_cast<std::uint32_t>(first);
  message.count = parts.size();
  alignas(cmsghdr) Control control{};
  sockaddr_un address;
  iovec part = {&message, sizeof message};
  msghdr header = {};
  header.msg_name = &address;
  header.msg_namelen = address_of_socket(to.name, address);
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = CMSG_SPACE(parts.size() * sizeof(int));
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(parts.size() * sizeof(int));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int sent = parts[i].descriptor.get();
    std::memcpy(CMSG_DATA(rights) + i * sizeof sent, &sent, sizeof sent);
    message.bytes[i] = parts[i].bytes;
  }
  if (sendmsg(fd.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Sent::all;
  // Retryable: its queue is full, or too many descriptors are in flight.
  const bool busy = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ||
                    errno == ETOOMANYREFS || errno == EINTR || errno == ENOMEM;
  return busy ? Sent::not_now : Sent::nobody_there;
}

}  // namespace pith::cuda
