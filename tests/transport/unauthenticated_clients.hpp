// UnauthenticatedClients at a port: what somebody may do there who does not know the job's secret.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"

namespace pith::test {

inline constexpr std::uint64_t stranger_patience_ns = 1'000'000'000;

inline Descriptor call_port(const std::string& address) {
  Expected<Descriptor> socket =
      connect_to(*parse_address(address), monotonic_ns() + stranger_patience_ns);
  return socket ? std::move(*socket) : Descriptor();
}

inline void say(const Descriptor& socket, std::string_view bytes) {
  if (!socket) return;
  static_cast<void>(send_all(socket.get(), std::as_bytes(std::span(bytes)),
                             monotonic_ns() + stranger_patience_ns));
}

// What comes next, at most `most` bytes; empty where the other side closes or is silent for long.
inline std::string hear_some(const Descriptor& socket, std::size_t most) {
  std::string bytes(most, '\0');
  if (!socket || !wait_for(socket.get(), POLLIN, monotonic_ns() + stranger_patience_ns)) return {};
  const ssize_t got = ::recv(socket.get(), bytes.data(), most, 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

// What a connector said in a handshake that it did not finish.
struct RecordedHandshake {
  std::string opening;
  std::size_t answer_bytes = 0;  // what it heard in between
  std::string proof;
};

inline RecordedHandshake record_handshake(const std::string& address, const Secret& secret,
                                          const Greeting& greeting) {
  RecordedHandshake recorded;
  const Descriptor port = call_port(address);
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) return recorded;
  const Descriptor near(ends[0]);
  const Descriptor far(ends[1]);
  Handshake handshake = Handshake::connector(secret, greeting);
  if (!handshake.step(near.get())) return recorded;
  recorded.opening = hear_some(far, 4096);
  say(port, recorded.opening);
  while (recorded.proof.empty()) {
    const std::string answer = hear_some(port, 4096);
    if (answer.empty()) break;
    recorded.answer_bytes += answer.size();
    say(far, answer);
    if (!handshake.step(near.get())) break;
    char proof[4096];
    const ssize_t got = ::recv(far.get(), proof, sizeof proof, MSG_DONTWAIT);
    if (got > 0) recorded.proof.assign(proof, static_cast<std::size_t>(got));
  }
  return recorded;
}

// Says the same again on a connection of its own: whether that is welcome.
inline bool replay_gets_in(const std::string& address, const RecordedHandshake& recorded,
                           std::string_view proof) {
  const Descriptor socket = call_port(address);
  say(socket, recorded.opening);
  std::size_t heard = 0;
  while (heard < recorded.answer_bytes) {
    const std::string answer = hear_some(socket, recorded.answer_bytes - heard);
    if (answer.empty()) return false;
    heard += answer.size();
  }
  say(socket, proof);
  return !hear_some(socket, 1).empty();
}

// Silent, half-closed, noisy and slow connections, guessed and replayed proofs, for as long as it
// lives.
class UnauthenticatedClients {
 public:
  // `greeting` is one that the port expects, `secret` the right one, so that there is a handshake
  // to be recorded.
  UnauthenticatedClients(std::string address, const Secret& secret, const Greeting& greeting,
                         int each = 10)
      : address_(std::move(address)) {
    const std::string noise(5000, '\xff');
    for (int i = 0; i < each; ++i) {
      calls_.push_back(call_port(address_));
      calls_.push_back(call_port(address_));
      if (calls_.back()) ::shutdown(calls_.back().get(), SHUT_WR);
      calls_.push_back(call_port(address_));
      say(calls_.back(), i % 2 == 0 ? std::string_view("GET / HTTP/1.1\r\n\r\n") : noise);
    }
    thread_ = std::thread([this, secret, greeting] { trouble(secret, greeting); });
  }
  ~UnauthenticatedClients() {
    stop_ = true;
    thread_.join();
  }
  UnauthenticatedClients(const UnauthenticatedClients&) = delete;
  UnauthenticatedClients& operator=(const UnauthenticatedClients&) = delete;

  // How many handshakes were tried to their end, and how many were welcome.
  int tried() const { return tried_; }
  int let_in() const { return let_in_; }

 private:
  void trouble(const Secret& secret, const Greeting& greeting) {
    const RecordedHandshake recorded = record_handshake(address_, secret, greeting);
    const Descriptor slow = call_port(address_);
    std::mt19937 random(7);
    for (std::size_t byte = 0; !stop_; ++byte) {
      if (slow && byte < recorded.opening.size()) {
        [[maybe_unused]] const auto sent =
            ::send(slow.get(), recorded.opening.data() + byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      std::string guess = recorded.proof;
      for (char& c : guess) c = static_cast<char>(random());
      for (const std::string& proof : {guess, recorded.proof}) {
        let_in_ += replay_gets_in(address_, recorded, proof) ? 1 : 0;
        tried_ += recorded.proof.empty() ? 0 : 1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  const std::string address_;
  std::vector<Descriptor> calls_;
  std::atomic<bool> stop_{false};
  std::atomic<int> tried_{0};
  std::atomic<int> let_in_{0};
  std::thread thread_;
};

// Connections that say nothing, more than any port takes at once.
inline std::vector<Descriptor> silent_crowd(const std::string& address, int count = 300) {
  std::vector<Descriptor> crowd;
  for (int i = 0; i < count; ++i) {
    Expected<Descriptor> socket = begin_connect(*parse_address(address));
    if (socket) crowd.push_back(std::move(*socket));
  }
  return crowd;
}

}  // namespace pith::test
