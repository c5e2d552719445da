// Authentication of a new connection: both sides prove that they know the job's secret.
//
//   connector -> acceptor   Opening   purpose, ranks, stream, nonce
//   acceptor  -> connector  Answer    nonce, proof of the acceptor
//   connector -> acceptor   Proof     proof of the connector
//   acceptor  -> connector  Accepted  frames may follow
//
// A proof is HMAC-SHA256 over a role byte, the whole opening and the acceptor's nonce, so it is not
// valid on another connection, in the other direction, or for other ranks. What follows is not
// encrypted by this: who wants that does so with keys(), as TcpTransport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "crypto/sha256.hpp"

namespace pith {

using Secret = std::array<std::byte, 16>;

// A random one.
Expected<Secret> make_secret();
// Another secret, which tells nothing of `key`.
Secret derive(std::span<const std::byte> key, std::span<const std::byte> purpose);

// For encrypting what follows a handshake, a key for each direction. They follow from the secret
// and the nonces, so each connection has its own; who learns the secret later can derive them.
struct ConnectionKeys {
  Digest sending{};
  Digest receiving{};
};

// What a connection is for. `from` has connected to `to`.
struct Greeting {
  static constexpr int any = -1;

  std::string purpose;  // at most 15 characters
  int from = any;
  int to = any;
  int ranks = any;
  int stream = any;
};

// One side of the handshake, a state machine over a non-blocking socket, so that a slow or hostile
// peer delays no other. The owner keeps the deadline.
class Handshake {
 public:
  // The connector must set every field.
  static Handshake connector(const Secret& secret, const Greeting& greeting);
  // In `expected`, `any` allows every value; greeting() returns the values received. `looks_first`:
  // step() returns Want::write once after the peer's opening, which is not authenticated yet,
  // before anything is sent to the peer.
  static Handshake acceptor(const Secret& secret, const Greeting& expected,
                            bool looks_first = false);

  enum class Want { read, write, done };
  // Sends and receives what it can without blocking. After an error the connection is unusable.
  Expected<Want> step(int fd);

  const Greeting& greeting() const { return greeting_; }
  // True when the last error shows a different secret, so that a retry is pointless. An acceptor
  // only infers that, from a connector that closes as soon as it has seen the proof.
  bool refused() const { return refused_; }
  // Precondition: step() has returned `done`.
  ConnectionKeys keys() const;

 private:
  using Nonce = std::array<std::byte, 32>;
  using Proof = Digest;
  struct Opening;
  struct Answer;
  enum class State : std::uint8_t { opening, answer, proof, accepted, done };

  static constexpr std::size_t message_max = 72;
  using Message = std::array<std::byte, message_max>;

  Error advance();
  Error accept_opening();
  Error accept_answer();
  Error accept_proof(const std::byte* proof, std::uint8_t role);
  Nonce fresh_nonce();
  Proof proof_of(std::uint8_t role) const;
  Digest key_of(std::uint8_t role) const;
  void will_send(const void* data, std::size_t size);
  void will_read(std::size_t size);

  Secret secret_{};
  Error fault_;  // no random numbers: the handshake fails
  Greeting greeting_;
  bool connector_ = false;
  bool refused_ = false;
  bool looks_first_ = false;
  State state_ = State::opening;
  Message opening_{};  // as it was on the wire
  Nonce nonce_{};      // the acceptor's
  Message out_{};
  Message in_{};
  std::size_t out_size_ = 0;
  std::size_t out_done_ = 0;
  std::size_t in_size_ = 0;
  std::size_t in_done_ = 0;
};

// Runs one side until it is done, or patience is over.
Error shake_hands(Handshake& handshake, int fd, const Patience& patience);

}  // namespace pith
