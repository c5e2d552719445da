// Packets at the socket by which ranks of one host attach, with descriptors and without. Whoever
// does not know the secret gets nowhere, and no descriptor of theirs stays.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "fuzz_target.hpp"
#include "transport/shm/shm_attach.hpp"

namespace pith::fuzz {

namespace {

constexpr std::size_t most_packets = 4;
constexpr std::size_t most_descriptors = 8;

Descriptor call(const std::string& name) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  expect(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
  return socket;
}

void say(const Descriptor& socket, std::string_view bytes, std::size_t descriptors, int one) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most_descriptors * sizeof(int))> control{};
  if (descriptors != 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    for (std::size_t i = 0; i < descriptors; ++i) {
      std::memcpy(CMSG_DATA(header) + i * sizeof one, &one, sizeof one);
    }
  }
  static_cast<void>(sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

int open_descriptors() {
  int count = 0;
  for (int number = 0; number < 100; ++number) count += fcntl(number, F_GETFD) >= 0;
  return count;
}

// Each packet has two bytes in front: how long it is, and how many descriptors come with it.
void attack(Bites& bites) {
  ShmRendezvous other(1, 2, Secret{});
  Secret secret{};
  secret[0] = std::byte{9};
  ShmRendezvous meeting(0, 2, secret);
  const Expected<std::string> others_name = other.listen(nullptr);
  const Expected<std::string> name = meeting.listen(nullptr);
  expect(others_name && name);
  const Descriptor stranger = call(*name);
  const Descriptor doorbell(eventfd(0, EFD_CLOEXEC));
  std::size_t packets = 0;
  for (; packets < most_packets && !bites.empty(); ++packets) {
    const std::size_t length = bites.byte();
    const std::size_t descriptors = bites.byte() % (most_descriptors + 1);
    say(stranger, bites.bytes(length), descriptors, doorbell.get());
  }
  const int mine[3] = {doorbell.get(), doorbell.get(), -1};
  // One turn for the call and one for each packet.
  std::size_t turns = 0;
  const Patience patience(~std::uint64_t{0}, [&] {
    pollfd end = {stranger.get(), 0, 0};
    const bool is_over = poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
    return is_over || turns++ > packets;
  });
  int found = 0;
  const std::string names[] = {*name, *others_name};
  expect(!meeting.meet(names, RingShape(), mine, 0, patience, [&](const auto&) { ++found; }));
  expect(found == 0);
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const int before = open_descriptors();
  Bites bites(input);
  attack(bites);
  expect(open_descriptors() == before);
}

std::vector<std::string> seeds() {
  ShmGreeting greeting;
  greeting.rank = 1;
  greeting.ranks = 2;
  const std::string hello(reinterpret_cast<const char*>(&greeting), sizeof greeting);
  const std::string length(1, static_cast<char>(hello.size()));
  const auto packet = [&](char descriptors) { return length + descriptors + hello; };
  // Too many descriptors, and some beside nothing.
  const std::string odd{0, 3};
  return {packet(0) + packet(3), packet(0) + packet(2), packet(4) + packet(8), packet(0) + odd};
}

}  // namespace pith::fuzz
