#include "transport/handshake.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/operation.hpp"
#include "crypto/random_bytes.hpp"
#include "transport/socket.hpp"

namespace pith {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

struct Handshake::Opening {
  std::array<char, 4> magic{'P', 'I', 'T', 'H'};
  std::uint32_t version = wire_version;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t ranks = 0;
  std::int32_t stream = 0;
  std::array<char, 16> purpose{};
  Nonce nonce{};
};

struct Handshake::Answer {
  std::array<char, 4> magic{'P', 'I', 'T', 'H'};
  std::uint32_t version = wire_version;
  Nonce nonce{};
  Proof proof{};
};

namespace {

constexpr std::uint8_t role_connector = 1;
constexpr std::uint8_t role_acceptor = 2;
constexpr std::uint32_t accepted = 0x454D4F43;

bool allowed(int expected, std::int32_t value) {
  return expected == Greeting::any ? value >= 0 : value == expected;
}

}  // namespace

Expected<Secret> make_secret() {
  Secret secret{};
  if (Error error = fill_random(secret)) return error;
  return secret;
}

Secret derive(std::span<const std::byte> key, std::span<const std::byte> purpose) {
  const Digest digest = hmac_sha256(key, purpose);
  Secret secret{};
  std::copy_n(digest.begin(), secret.size(), secret.begin());
  return secret;
}

Handshake Handshake::connector(const Secret& secret, const Greeting& greeting) {
  static_assert(sizeof(Opening) <= message_max && sizeof(Answer) <= message_max);
  Handshake shake;
  shake.secret_ = secret;
  shake.greeting_ = greeting;
  shake.connector_ = true;
  Opening opening;
  opening.from = greeting.from;
  opening.to = greeting.to;
  opening.ranks = greeting.ranks;
  opening.stream = greeting.stream;
  opening.nonce = shake.fresh_nonce();
  const std::size_t length = std::min(greeting.purpose.size(), opening.purpose.size() - 1);
  std::copy_n(greeting.purpose.begin(), length, opening.purpose.begin());
  std::memcpy(shake.opening_.data(), &opening, sizeof opening);
  shake.will_send(&opening, sizeof opening);
  shake.will_read(sizeof(Answer));
  shake.state_ = State::answer;
  return shake;
}

Handshake Handshake::acceptor(const Secret& secret, const Greeting& expected, bool looks_first) {
  Handshake shake;
  shake.looks_first_ = looks_first;
  shake.secret_ = secret;
  shake.greeting_ = expected;
  shake.will_read(sizeof(Opening));
  return shake;
}

Expected<Handshake::Want> Handshake::step(int fd) {
  if (fault_) return fault_;
  for (;;) {
    while (out_done_ < out_size_) {
      const ssize_t sent =
          ::send(fd, out_.data() + out_done_, out_size_ - out_done_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && would_block(errno)) return Want::write;
      if (sent < 0) return system_error(fmt::format("greet {}", peer_name(fd)), errno);
      out_done_ += static_cast<std::size_t>(sent);
    }
    while (in_done_ < in_size_) {
      const ssize_t got = ::recv(fd, in_.data() + in_done_, in_size_ - in_done_, MSG_DONTWAIT);
      if (got < 0 && would_block(errno)) return Want::read;
      if (got < 0) return system_error(fmt::format("greet {}", peer_name(fd)), errno);
      if (got == 0) {
        refused_ = refused_ || state_ == State::proof;
        return Error(Code::remote,
                     fmt::format("greet {}: it closed the connection{}", peer_name(fd),
                                 refused_ ? " when it had seen our proof, as who holds another "
                                            "secret does"
                                          : ""));
      }
      in_done_ += static_cast<std::size_t>(got);
    }
    if (state_ == State::done) return Want::done;
    if (Error error = advance()) {
      return Error(error.code(), fmt::format("greet {}: {}", peer_name(fd), error.message()));
    }
    if (state_ == State::proof && std::exchange(looks_first_, false)) return Want::write;
  }
}

// All bytes of this step have been sent and received: handles them and prepares the next step.
Error Handshake::advance() {
  switch (state_) {
    case State::opening: {
      if (Error error = accept_opening()) return error;
      Answer answer;
      answer.nonce = nonce_ = fresh_nonce();
      answer.proof = proof_of(role_acceptor);
      if (fault_) return fault_;
      will_send(&answer, sizeof answer);
      will_read(sizeof(Proof));
      state_ = State::proof;
      return {};
    }
    case State::answer: {
      if (Error error = accept_answer()) return error;
      const Proof proof = proof_of(role_connector);
      if (fault_) return fault_;
      will_send(proof.data(), proof.size());
      will_read(sizeof accepted);
      state_ = State::accepted;
      return {};
    }
    case State::proof: {
      if (Error error = accept_proof(in_.data(), role_connector)) return error;
      will_send(&accepted, sizeof accepted);
      will_read(0);
      state_ = State::done;
      return {};
    }
    case State::accepted:
      if (std::memcmp(in_.data(), &accepted, sizeof accepted) != 0) {
        return Error(Code::remote, "it answers with something else than a Pith rank would");
      }
      will_send(nullptr, 0);
      will_read(0);
      state_ = State::done;
      return {};
    case State::done:
      return {};
  }
  return {};
}

Error Handshake::accept_opening() {
  Opening opening;
  std::memcpy(&opening, in_.data(), sizeof opening);
  if (opening.magic != Opening().magic) return Error(Code::remote, "it is not a Pith rank");
  if (opening.version != wire_version) {
    return Error(Code::remote, fmt::format("it speaks wire version {}, this rank version {}",
                                           opening.version, wire_version));
  }
  opening.purpose.back() = '\0';
  if (greeting_.purpose != opening.purpose.data() || !allowed(greeting_.from, opening.from) ||
      !allowed(greeting_.to, opening.to) || !allowed(greeting_.ranks, opening.ranks) ||
      !allowed(greeting_.stream, opening.stream)) {
    return Error(Code::remote, "it asks for a connection that this rank does not expect");
  }
  greeting_.from = opening.from;
  greeting_.to = opening.to;
  greeting_.ranks = opening.ranks;
  greeting_.stream = opening.stream;
  opening_ = in_;
  return {};
}

Error Handshake::accept_answer() {
  Answer answer;
  std::memcpy(&answer, in_.data(), sizeof answer);
  if (answer.magic != Answer().magic) return Error(Code::remote, "it is not a Pith rank");
  if (answer.version != wire_version) {
    return Error(Code::remote, fmt::format("it speaks wire version {}, this rank version {}",
                                           answer.version, wire_version));
  }
  nonce_ = answer.nonce;
  return accept_proof(answer.proof.data(), role_acceptor);
}

Error Handshake::accept_proof(const std::byte* proof, std::uint8_t role) {
  Proof theirs;
  std::memcpy(theirs.data(), proof, theirs.size());
  if (same_digest(theirs, proof_of(role))) return {};
  refused_ = true;
  return Error(Code::remote, "it does not know the secret of this job");
}

Handshake::Nonce Handshake::fresh_nonce() {
  Nonce nonce{};
  if (Error error = fill_random(nonce)) fault_ = std::move(error);
  return nonce;
}

Handshake::Proof Handshake::proof_of(std::uint8_t role) const {
  std::array<std::byte, 1 + sizeof(Opening) + sizeof(Nonce)> said;
  said[0] = std::byte{role};
  std::memcpy(said.data() + 1, opening_.data(), sizeof(Opening));
  std::memcpy(said.data() + 1 + sizeof(Opening), nonce_.data(), sizeof nonce_);
  return hmac_sha256(secret_, said);
}

ConnectionKeys Handshake::keys() const {
  const std::uint8_t own = connector_ ? role_connector : role_acceptor;
  const std::uint8_t other = connector_ ? role_acceptor : role_connector;
  return {key_of(own), key_of(other)};
}

// The label keeps it apart from proofs, which begin with the role.
Digest Handshake::key_of(std::uint8_t role) const {
  constexpr std::string_view label = "pith key of role ";
  std::array<std::byte, label.size() + 1 + sizeof(Opening) + sizeof(Nonce)> said;
  std::byte* to = said.data();
  const auto add = [&to](const void* bytes, std::size_t size) {
    std::memcpy(to, bytes, size);
    to += size;
  };
  add(label.data(), label.size());
  add(&role, sizeof role);
  add(opening_.data(), sizeof(Opening));
  add(nonce_.data(), sizeof nonce_);
  return hmac_sha256(secret_, said);
}

void Handshake::will_send(const void* data, std::size_t size) {
  if (size != 0) std::memcpy(out_.data(), data, size);
  out_size_ = size;
  out_done_ = 0;
}

void Handshake::will_read(std::size_t size) {
  in_size_ = size;
  in_done_ = 0;
}

Error shake_hands(Handshake& handshake, int fd, const Patience& patience) {
  for (;;) {
    Expected<Handshake::Want> want = handshake.step(fd);
    if (!want) return want.error();
    if (*want == Handshake::Want::done) return {};
    const short events = *want == Handshake::Want::read ? POLLIN : POLLOUT;
    if (!wait_for(fd, events, patience)) {
      return Error(Code::remote,
                   fmt::format("greet {}: no answer within the time allowed", peer_name(fd)));
    }
  }
}

}  // namespace pith
