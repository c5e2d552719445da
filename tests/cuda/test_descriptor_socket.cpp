// Descriptors of device memory from one process to another: here within one, by memory files.
#include "cuda/descriptor_socket.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "catch.hpp"

using pith::cuda::DescriptorSocket;
using pith::cuda::MemoryPart;
using pith::cuda::OwnedDescriptor;

namespace {

constexpr DescriptorSocket::Key key{11, 5};

std::unique_ptr<DescriptorSocket> open_socket() {
  auto socket = DescriptorSocket::open();
  REQUIRE(socket);
  return std::move(*socket);
}

// So many, each of another length; of the file and as it is told.
std::vector<MemoryPart> parts(std::size_t count, std::size_t from = 0) {
  std::vector<MemoryPart> all;
  for (std::size_t i = from; i < from + count; ++i) {
    OwnedDescriptor file(memfd_create("part", MFD_CLOEXEC));
    REQUIRE(ftruncate(file.get(), static_cast<off_t>(i + 1)) == 0);
    all.push_back({std::move(file), i + 1});
  }
  return all;
}

bool are_in_order(const std::vector<MemoryPart>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const off_t length = lseek(all[i].descriptor.get(), 0, SEEK_END);
    if (all[i].bytes != i + 1 || length != static_cast<off_t>(i + 1)) return false;
  }
  return true;
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 512; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

DescriptorSocket::Sent send(const DescriptorSocket& socket, std::uint64_t secret, std::size_t first,
                            std::size_t count) {
  return DescriptorSocket::send({socket.name(), secret}, key.slot, first, parts(count, first));
}

constexpr auto all_sent = DescriptorSocket::Sent::all;

}  // namespace

TEST_CASE("a socket takes what is expected, in any order, once it is all there") {
  const auto socket = open_socket();
  socket->expect(key, 100);
  CHECK(send(*socket, key.secret, 64, 36) == all_sent);
  CHECK(socket->take(key).empty());
  CHECK(send(*socket, key.secret, 64, 36) == all_sent);  // again, as if it had been lost
  CHECK(send(*socket, key.secret, 0, 64) == all_sent);
  const std::vector<MemoryPart> taken = socket->take(key);
  CHECK(taken.size() == 100);
  CHECK(are_in_order(taken));
  CHECK(socket->take(key).empty());
}

TEST_CASE("a socket closes what nobody expects, and what does not fit") {
  const auto socket = open_socket();
  const int before = open_descriptors();
  socket->expect(key, 3);
  CHECK(send(*socket, key.secret + 1, 0, 3) == all_sent);  // a stranger, who knows the name only
  CHECK(send(*socket, key.secret, 1, 3) == all_sent);
  CHECK(send(*socket, key.secret, 4, 1) == all_sent);
  CHECK(socket->take(key).empty());
  CHECK(open_descriptors() == before);
  CHECK(send(*socket, key.secret, 0, 2) == all_sent);
  CHECK(socket->take(key).empty());
  CHECK(open_descriptors() == before + 2);
  socket->expect_no_more(key);
  CHECK(open_descriptors() == before);
}

TEST_CASE("who sends to a socket never waits") {
  auto socket = open_socket();
  const DescriptorSocket::Address address{socket->name(), key.secret};
  auto sent = all_sent;
  for (int i = 0; i < 10000 && sent == all_sent; ++i) sent = send(*socket, key.secret, 0, 1);
  CHECK(sent == DescriptorSocket::Sent::not_now);
  socket->take(key);
  CHECK(send(*socket, key.secret, 0, 1) == all_sent);
  socket.reset();
  CHECK(DescriptorSocket::send(address, key.slot, 0, parts(1)) ==
        DescriptorSocket::Sent::nobody_there);
}
