// Descriptors of device memory from one process to another: here within one, by memory files.
#include "cuda/descriptor_door.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "catch.hpp"

using pith::cuda::DescriptorDoor;
using pith::cuda::MemoryPart;
using pith::cuda::OwnedDescriptor;

namespace {

constexpr DescriptorDoor::Key key{11, 5};

std::unique_ptr<DescriptorDoor> open_door() {
  auto door = DescriptorDoor::open();
  REQUIRE(door);
  return std::move(*door);
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

DescriptorDoor::Sent send(const DescriptorDoor& door, std::uint64_t secret, std::size_t first,
                          std::size_t count) {
  return DescriptorDoor::send({door.name(), secret}, key.slot, first, parts(count, first));
}

constexpr auto all_sent = DescriptorDoor::Sent::all;

}  // namespace

TEST_CASE("a door takes what is expected, in any order, once it is all there") {
  const auto door = open_door();
  door->expect(key, 100);
  CHECK(send(*door, key.secret, 64, 36) == all_sent);
  CHECK(door->take(key).empty());
  CHECK(send(*door, key.secret, 64, 36) == all_sent);  // again, as if it had been lost
  CHECK(send(*door, key.secret, 0, 64) == all_sent);
  const std::vector<MemoryPart> taken = door->take(key);
  CHECK(taken.size() == 100);
  CHECK(are_in_order(taken));
  CHECK(door->take(key).empty());
}

TEST_CASE("a door closes what nobody expects, and what does not fit") {
  const auto door = open_door();
  const int before = open_descriptors();
  door->expect(key, 3);
  CHECK(send(*door, key.secret + 1, 0, 3) == all_sent);  // a stranger, who knows the name only
  CHECK(send(*door, key.secret, 1, 3) == all_sent);
  CHECK(send(*door, key.secret, 4, 1) == all_sent);
  CHECK(door->take(key).empty());
  CHECK(open_descriptors() == before);
  CHECK(send(*door, key.secret, 0, 2) == all_sent);
  CHECK(door->take(key).empty());
  CHECK(open_descriptors() == before + 2);
  door->expect_no_more(key);
  CHECK(open_descriptors() == before);
}

TEST_CASE("who sends to a door never waits") {
  auto door = open_door();
  const DescriptorDoor::Address address{door->name(), key.secret};
  auto sent = all_sent;
  for (int i = 0; i < 10000 && sent == all_sent; ++i) sent = send(*door, key.secret, 0, 1);
  CHECK(sent == DescriptorDoor::Sent::not_now);
  door->take(key);
  CHECK(send(*door, key.secret, 0, 1) == all_sent);
  door.reset();
  CHECK(DescriptorDoor::send(address, key.slot, 0, parts(1)) == DescriptorDoor::Sent::nobody_there);
}
