// An encrypted TCP stream that was altered on its way: nothing but what was sealed comes out.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz_target.hpp"
#include "transport/tcp/tcp_seal.hpp"

namespace pith::fuzz {

namespace {

constexpr std::size_t lengths[] = {1, 48, 700};

// Every byte tells its offset.
std::vector<std::byte> plain_bytes() {
  std::size_t bytes = 0;
  for (const std::size_t length : lengths) bytes += length;
  std::vector<std::byte> plain(bytes);
  for (std::size_t i = 0; i < bytes; ++i) plain[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  return plain;
}

std::string stream() {
  Expected<Aead> aead = Aead::create(Aead::Use::seal, Aead::Key{});
  expect(static_cast<bool>(aead));
  TcpSealer sealer(std::move(*aead));
  std::vector<std::byte> plain = plain_bytes();
  std::byte* from = plain.data();
  std::string out;
  for (const std::size_t length : lengths) {
    const iovec part{from, length};
    const std::span<const std::byte> sealed = sealer.next({&part, 1});
    out.append(reinterpret_cast<const char*>(sealed.data()), sealed.size());
    from += sealer.wrote(sealed.size());
  }
  return out;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  static const std::vector<std::byte> plain = plain_bytes();
  Expected<Aead> aead = Aead::create(Aead::Use::open, Aead::Key{});
  expect(static_cast<bool>(aead));
  TcpOpener opener(std::move(*aead));
  std::size_t taken = 0;
  while (!input.empty() && !opener.fault()) {
    const std::span<std::byte> room = opener.room();
    expect(!room.empty());
    const std::size_t bytes = std::min({room.size(), input.size(), std::size_t{100}});
    std::memcpy(room.data(), input.data(), bytes);
    opener.arrived(bytes);
    input = input.subspan(bytes);
    while (opener.holds() && !opener.fault()) {
      std::byte got[64];
      const iovec part{got, sizeof got};
      PartCursor into({&part, 1});
      opener.take(into);
      const std::size_t came = sizeof got - into.left();
      if (opener.fault()) break;
      expect(came <= plain.size() - taken);
      expect(std::equal(got, got + came, plain.begin() + static_cast<std::ptrdiff_t>(taken)));
      taken += came;
    }
  }
}

std::vector<std::string> seeds() { return {stream()}; }

}  // namespace pith::fuzz
