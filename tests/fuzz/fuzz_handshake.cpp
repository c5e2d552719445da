// Both sides of the handshake against whatever the other end says. Nobody gets in without the
// secret.
#include <sys/socket.h>

#include "fuzz_target.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"

namespace pith::fuzz {

namespace {

const Greeting greeting{"control", 3, 1, 4, 0};
const Greeting expected{"control", Greeting::any, 1, 4, 0};

// Two joined descriptors, made once: the parser reads all that is written here.
class Line {
 public:
  Line() {
    int ends[2] = {-1, -1};
    expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    near_ = Descriptor(ends[0]);
    far_ = Descriptor(ends[1]);
  }
  int near() const { return near_.get(); }
  void say(std::string_view bytes) const {
    static_cast<void>(::send(far_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT));
  }
  std::string hear() const {
    char bytes[512];
    const ssize_t got = ::recv(far_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return {bytes, got > 0 ? static_cast<std::size_t>(got) : 0};
  }

 private:
  Descriptor near_;
  Descriptor far_;
};

void attack(Handshake handshake, Bites& bites) {
  const Line line;
  while (true) {
    const Expected<Handshake::Want> want = handshake.step(line.near());
    if (!want) return;
    expect(*want != Handshake::Want::done);
    if (bites.empty()) return;
    line.say(bites.bytes(bites.byte() + std::size_t{1}));
  }
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  Bites bites(input);
  const bool calls = (bites.byte() & 1) != 0;
  Secret secret{};
  secret[0] = std::byte{9};
  attack(calls ? Handshake::connector(secret, greeting) : Handshake::acceptor(secret, expected),
         bites);
}

// What each side hears in a handshake with another secret; nonces differ from run to run, lengths
// do not.
std::vector<std::string> seeds() {
  const auto bite = [](char side, const std::string& bytes) {
    return std::string{side, static_cast<char>(bytes.size() - 1)} + bytes;
  };
  const Line calling;
  const Line called;
  Handshake connector = Handshake::connector(Secret{}, greeting);
  Handshake acceptor = Handshake::acceptor(Secret{}, expected);
  static_cast<void>(connector.step(calling.near()));
  const std::string opening = calling.hear();
  called.say(opening);
  static_cast<void>(acceptor.step(called.near()));
  const std::string answer = called.hear();
  calling.say(answer);
  static_cast<void>(connector.step(calling.near()));
  const std::string proof = calling.hear();
  const std::string for_acceptor = bite(0, opening) + bite(0, proof).substr(1);
  return {for_acceptor, bite(0, opening), bite(1, answer)};
}

}  // namespace pith::fuzz
