// What comes before and beside TCP messages: addresses, handshakes, strangers, garbage.
#include <array>
#include <initializer_list>
#include <span>
#include <utility>

#include "catch.hpp"
#include "tests/transport/fuzz_tcp_reader.hpp"
#include "tests/transport/tcp_ranks.hpp"

namespace pith::test {
namespace {

Secret secret_of(int number) {
  Secret secret{};
  secret[3] = static_cast<std::byte>(number);
  return secret;
}

TEST_CASE("socket: addresses") {
  for (const char* text : {"127.0.0.1:5000", "[::1]:65535"}) {
    Expected<Address> address = parse_address(text);
    REQUIRE(address);
    CHECK(format_address(*address) == text);
  }
  for (const char* text : {"", ":1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:5",
                           "[::1:5", "localhost:80", "1.2.3.4:5x"}) {
    CHECK_FALSE(parse_address(text));
  }
}

TEST_CASE("socket: a range of ports, and nobody there") {
  Expected<Descriptor> first = listen_on("127.0.0.1");
  REQUIRE(first);
  const std::string taken = format_address(*local_address(first->get()));
  const auto port = static_cast<std::uint16_t>(std::stoi(taken.substr(taken.find(':') + 1)));
  const Expected<Descriptor> again = listen_on("127.0.0.1", {port, port});
  CHECK_FALSE(again);
  CHECK(std::string(again.error().message()).find("127.0.0.1") != std::string::npos);
  first->reset();
  const auto refused = connect_to(*parse_address(taken), monotonic_ns() + second);
  CHECK_FALSE(refused);
  CHECK(std::string(refused.error().message()).find(taken) != std::string::npos);
}

struct Pair {
  Descriptor connector;
  Descriptor acceptor;
};

Pair connected_pair() {
  Expected<Descriptor> listener = listen_on("127.0.0.1");
  Pair pair;
  pair.connector = std::move(*connect_to(*local_address(listener->get()), monotonic_ns() + second));
  wait_for(listener->get(), POLLIN, monotonic_ns() + second);
  pair.acceptor = std::move(*accept_one(listener->get()));
  return pair;
}

TEST_CASE("handshake: who knows the secret is let in, nobody else") {
  const bool same = GENERATE(true, false);
  Pair pair = connected_pair();
  Handshake caller = Handshake::connector(secret_of(1), {"test", 3, 1, 4, 2});
  Handshake callee =
      Handshake::acceptor(secret_of(same ? 1 : 2), {"test", Greeting::any, 1, 4, Greeting::any});
  Error called;
  std::thread other(
      [&] { called = shake_hands(caller, pair.connector.get(), monotonic_ns() + second); });
  const Error answered = shake_hands(callee, pair.acceptor.get(), monotonic_ns() + second / 2);
  pair.acceptor.reset();
  other.join();
  CHECK(!called == same);
  CHECK(!answered == same);
  CHECK(caller.refused() == !same);
  if (same) CHECK((callee.greeting().from == 3 && callee.greeting().stream == 2));
}

TEST_CASE("handshake: another purpose, another job size, silence") {
  Pair pair = connected_pair();
  const int which = GENERATE(0, 1, 2);
  Handshake caller = Handshake::connector(
      secret_of(1), {which == 0 ? "other" : "test", 3, 1, which == 1 ? 5 : 4, 2});
  Handshake callee =
      Handshake::acceptor(secret_of(1), {"test", Greeting::any, 1, 4, Greeting::any});
  if (which != 2) REQUIRE(caller.step(pair.connector.get()));
  CHECK(shake_hands(callee, pair.acceptor.get(), monotonic_ns() + second / 20));
}

TEST_CASE("handshake: the acceptor's own proof, sent back, is none") {
  Pair pair = connected_pair();
  Handshake caller = Handshake::connector(secret_of(2), {"test", 3, 1, 4, 2});
  Handshake callee =
      Handshake::acceptor(secret_of(1), {"test", Greeting::any, 1, 4, Greeting::any});
  REQUIRE(caller.step(pair.connector.get()));
  REQUIRE(wait_for(pair.acceptor.get(), POLLIN, monotonic_ns() + second));
  REQUIRE(callee.step(pair.acceptor.get()));
  std::array<std::byte, 128> answer;
  REQUIRE(wait_for(pair.connector.get(), POLLIN, monotonic_ns() + second));
  const ssize_t got = ::recv(pair.connector.get(), answer.data(), answer.size(), 0);
  REQUIRE(got > static_cast<ssize_t>(sizeof(Digest)));
  const auto proof = std::span(answer).first(static_cast<std::size_t>(got)).last(sizeof(Digest));
  REQUIRE(!send_all(pair.connector.get(), proof, monotonic_ns() + second));
  REQUIRE(wait_for(pair.acceptor.get(), POLLIN, monotonic_ns() + second));
  CHECK_FALSE(callee.step(pair.acceptor.get()));
  CHECK(callee.refused());
}

TEST_CASE("tcp: a rank that does not come is named") {
  const std::vector<std::uint8_t> use(2, 1);
  TcpRank low(0, 2, secret_of(1));
  std::vector<std::string> addresses{*low.transport->listen(), ""};
  const Error error = low.transport->connect(addresses, use, monotonic_ns() + second / 10);
  CHECK(error.rank() == 1);
}

// What is said to a message of 90 bytes of which 30 are here, and to pieces: offset and bytes.
std::string said_to(std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> pieces) {
  std::vector<std::uint8_t> bytes;
  const auto add = [&bytes](const void* head, std::size_t head_bytes, std::size_t payload) {
    bytes.push_back(static_cast<std::uint8_t>((head_bytes + payload - 1) * 2));
    const auto* raw = static_cast<const std::uint8_t*>(head);
    bytes.insert(bytes.end(), raw, raw + head_bytes);
    bytes.resize(bytes.size() + payload);
  };
  MessageOpening opening;
  opening.frame.type = FrameType::large;
  opening.frame.bytes = 30;
  opening.header.length = 90;
  add(&opening, sizeof opening, opening.frame.bytes);
  Frame piece;
  piece.type = FrameType::piece;
  for (const auto& [offset, length] : pieces) {
    piece.offset = offset;
    piece.bytes = length;
    add(&piece, sizeof piece, length);
  }
  const char* const fault = feed_tcp_reader(bytes);
  return fault ? fault : "";
}

TEST_CASE("tcp: pieces outside a message, and more of them than it has") {
  const std::string outside = "a piece outside its message";
  CHECK(said_to({{30, 60}}) == "");
  CHECK(said_to({{60, 30}, {30, 30}}) == "");
  CHECK(said_to({{91, 1}}) == outside);
  CHECK(said_to({{60, 31}}) == outside);
  CHECK(said_to({{30, 40}, {30, 40}}) == outside);
}

}  // namespace
}  // namespace pith::test
