// Records of an encrypted stream, without sockets and with: cut anywhere, and altered on their way.
#include <sys/socket.h>

#include <cerrno>
#include <random>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "tests/transport/contents.hpp"
#include "transport/socket.hpp"
#include "transport/tcp/tcp_seal.hpp"

namespace pith::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t around_a_record = sizeof(std::uint32_t) + Aead::tag_bytes;

Aead aead(Aead::Use use) {
  Expected<Aead> made = Aead::create(use, Aead::Key{});
  REQUIRE(made);
  return std::move(*made);
}

// What the sealer makes of these bytes; each call of the socket takes up to `most`.
Bytes sealed(TcpSealer& sealer, Bytes plain, std::size_t most = seal_buffer_bytes) {
  Bytes out;
  std::size_t written = 0;
  while (written < plain.size()) {
    // The bytes may have moved meanwhile, and come in other parts.
    Bytes again(plain.begin() + static_cast<std::ptrdiff_t>(written), plain.end());
    const std::size_t cut = std::min<std::size_t>(again.size(), 48);
    const iovec parts[] = {{again.data(), cut}, {again.data() + cut, again.size() - cut}};
    const std::span<const std::byte> next = sealer.next(parts);
    REQUIRE_FALSE(next.empty());
    const std::span<const std::byte> taken = next.first(std::min(most, next.size()));
    out.insert(out.end(), taken.begin(), taken.end());
    written += sealer.wrote(taken.size());
  }
  return out;
}

Bytes sealed(Bytes plain) {
  TcpSealer sealer(aead(Aead::Use::seal));
  return sealed(sealer, std::move(plain));
}

struct Opened {
  Bytes plain;
  const char* fault = nullptr;
};

// `came`: how much comes at once; `room`: for how much there is room at once.
Opened open_all(std::span<const std::byte> stream, std::size_t came = seal_buffer_bytes,
                std::size_t room = 4000) {
  TcpOpener opener(aead(Aead::Use::open));
  Opened opened;
  while (!stream.empty() && !opener.fault()) {
    const std::span<std::byte> into = opener.room();
    const std::size_t bytes = std::min({came, into.size(), stream.size()});
    std::memcpy(into.data(), stream.data(), bytes);
    opener.arrived(bytes);
    stream = stream.subspan(bytes);
    while (opener.holds() && !opener.fault()) {
      Bytes part(room);
      const std::size_t first = room / 3;
      const iovec parts[] = {{part.data(), first}, {part.data() + first, room - first}};
      PartCursor cursor(parts);
      opener.take(cursor);
      const auto end = part.begin() + static_cast<std::ptrdiff_t>(room - cursor.left());
      if (!opener.fault()) opened.plain.insert(opened.plain.end(), part.begin(), end);
    }
  }
  opened.fault = opener.fault();
  return opened;
}

TEST_CASE("sealed streams may be cut anywhere", "[seal]") {
  std::minstd_rand random(7);
  for (int round = 0; round < 100; ++round) {
    TcpSealer sealer(aead(Aead::Use::seal));
    Bytes plain;
    Bytes stream;
    for (int frame = 0; frame < 4; ++frame) {
      const std::size_t limit = frame == 0 ? 3 * seal_buffer_bytes : 200;
      const Bytes one = contents(1 + random() % limit, random());
      plain.insert(plain.end(), one.begin(), one.end());
      const Bytes more = sealed(sealer, one, 1 + random() % seal_buffer_bytes);
      stream.insert(stream.end(), more.begin(), more.end());
    }
    const Opened opened =
        open_all(stream, 1 + random() % seal_buffer_bytes, 3 + random() % (2 * seal_record_bytes));
    REQUIRE(opened.fault == nullptr);
    REQUIRE(same(opened.plain, plain));
  }
}

TEST_CASE("one byte at a time", "[seal]") {
  TcpSealer sealer(aead(Aead::Use::seal));
  const Bytes plain = contents(3000, 1);
  const Opened opened = open_all(sealed(sealer, plain, 1), 1, 3);
  CHECK(opened.fault == nullptr);
  CHECK(same(opened.plain, plain));
}

TEST_CASE("a flipped bit is noticed before anything of its record is used", "[seal]") {
  const Bytes first = contents(40, 1);
  TcpSealer sealer(aead(Aead::Use::seal));
  const Bytes one = sealed(sealer, first);
  Bytes stream = one;
  for (const std::byte byte : sealed(sealer, contents(seal_record_bytes, 2))) {
    stream.push_back(byte);
  }
  for (std::size_t bit = 0; bit < 8 * (one.size() + around_a_record); ++bit) {
    INFO(bit);
    Bytes changed = stream;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    const Opened opened = open_all(changed, seal_buffer_bytes, first.size());
    // A length that has grown may want more than ever comes.
    const bool in_length = bit % (8 * one.size()) < 32;
    if (!in_length) REQUIRE(opened.fault != nullptr);
    REQUIRE(same(opened.plain, bit / 8 < one.size() ? Bytes() : first));
  }
}

TEST_CASE("records that are repeated, swapped, left out or cut off are refused", "[seal]") {
  TcpSealer sealer(aead(Aead::Use::seal));
  Bytes records[3];
  for (std::uint64_t i = 0; i < 3; ++i) records[i] = sealed(sealer, contents(500, i));
  const auto joined = [&](const std::vector<int>& order) {
    Bytes stream;
    for (const int i : order) stream.insert(stream.end(), records[i].begin(), records[i].end());
    return stream;
  };
  REQUIRE(open_all(joined({0, 1, 2})).fault == nullptr);
  const std::vector<std::vector<int>> orders = {{0, 0}, {0, 2}, {1}, {0, 2, 1}, {2, 1, 0}};
  for (const std::vector<int>& order : orders) {
    const Opened opened = open_all(joined(order));
    REQUIRE(opened.fault != nullptr);
    CHECK(std::string_view(opened.fault) == "an encrypted record that is not authentic");
    CHECK(opened.plain.size() <= 500);
  }
  const Bytes all = joined({0, 1});
  for (std::size_t length = 0; length < all.size(); ++length) {
    const Opened opened = open_all(std::span(all).first(length));
    CHECK(opened.plain.size() == (length < records[0].size() ? 0 : 500));
  }
}

TEST_CASE("a record of no length, or of too much", "[seal]") {
  for (const std::uint32_t length : {std::uint32_t{0}, std::uint32_t{seal_record_bytes + 1}, ~0u}) {
    Bytes stream = sealed(contents(100, 1));
    std::memcpy(stream.data(), &length, sizeof length);
    const Opened opened = open_all(stream);
    REQUIRE(opened.fault != nullptr);
    CHECK(std::string_view(opened.fault) == "an encrypted record of impossible length");
    CHECK(opened.plain.empty());
  }
}

struct Ends {
  Ends() {
    int fds[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    near = Descriptor(fds[0]);
    far = Descriptor(fds[1]);
    ConnectionKeys keys;
    keys.sending[0] = std::byte{1};
    auto made = TcpSeal::create(keys);
    REQUIRE(made);
    writing = std::move(*made);
    std::swap(keys.sending, keys.receiving);
    made = TcpSeal::create(keys);
    REQUIRE(made);
    reading = std::move(*made);
  }
  Descriptor near;
  Descriptor far;
  std::unique_ptr<TcpSeal> writing;
  std::unique_ptr<TcpSeal> reading;
};

TEST_CASE("a byte counts as written when the kernel has its record", "[seal]") {
  Ends ends;
  const int room = 4096;
  ::setsockopt(ends.near.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  const Bytes plain = contents(1 << 20, 3);
  Bytes got(plain.size());
  std::size_t written = 0;
  std::size_t read = 0;
  bool waited = false;
  for (int turn = 0; turn < 10'000 && read < plain.size(); ++turn) {
    if (written < plain.size()) {
      Bytes again(plain.begin() + static_cast<std::ptrdiff_t>(written), plain.end());
      const iovec rest{again.data(), again.size()};
      const ssize_t bytes = ends.writing->write(ends.near.get(), {&rest, 1});
      waited |= bytes < 0;
      if (bytes < 0) REQUIRE((errno == EAGAIN || errno == EWOULDBLOCK));
      if (bytes > 0) written += static_cast<std::size_t>(bytes);
    }
    const iovec into{got.data() + read, std::min<std::size_t>(got.size() - read, 10'000)};
    const ssize_t bytes = ends.reading->read(ends.far.get(), {&into, 1});
    if (bytes < 0) REQUIRE((errno == EAGAIN || errno == EWOULDBLOCK));
    if (bytes > 0) read += static_cast<std::size_t>(bytes);
  }
  CHECK(waited);
  CHECK(written == plain.size());
  CHECK(same(got, plain));
}

TEST_CASE("what has been read and not taken does not wait for the socket", "[seal]") {
  Ends ends;
  Bytes plain = contents(30'000, 3);
  const iovec all{plain.data(), plain.size()};
  REQUIRE(ends.writing->write(ends.near.get(), {&all, 1}) == 30'000);
  Bytes got(plain.size());
  iovec part{got.data(), 100};
  REQUIRE(ends.reading->read(ends.far.get(), {&part, 1}) == 100);
  CHECK(ends.reading->holds());
  ends.near.reset();
  part = {got.data() + 100, 20'000};
  REQUIRE(ends.reading->read(ends.far.get(), {&part, 1}) == 20'000);
  CHECK(ends.reading->holds());
  part = {got.data() + 20'100, 9900};
  REQUIRE(ends.reading->read(ends.far.get(), {&part, 1}) == 9900);
  CHECK_FALSE(ends.reading->holds());
  CHECK(ends.reading->read(ends.far.get(), {&part, 1}) == 0);
  CHECK(same(got, plain));
}

TEST_CASE("nothing is written after what was cut off", "[seal]") {
  Ends ends;
  Bytes plain = contents(100, 3);
  const iovec all{plain.data(), plain.size()};
  ends.writing->end_writing();
  CHECK(ends.writing->write(ends.near.get(), {&all, 1}) == -1);
  CHECK(errno == EPIPE);
  CHECK(ends.writing->last({&all, 1}).empty());
}

}  // namespace
}  // namespace pith::test
