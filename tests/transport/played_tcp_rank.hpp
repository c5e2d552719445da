// Rank 1 of two, played by a test that knows each byte, opposite a real rank 0.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/own_sockets.hpp"
#include "tests/transport/tcp_ranks.hpp"
#include "tests/transport/unauthenticated_clients.hpp"
#include "transport/tcp/tcp_frames.hpp"
#include "transport/tcp/tcp_resumption.hpp"

namespace pith::test {

class PlayedTcpRank {
 public:
  // Both ranks of the pair go on after breaks.
  explicit PlayedTcpRank(int streams) : zero(0, 2, secret_of_tcp_ranks(), options_of(streams)) {
    address_ = *zero.transport->listen();
    listener_ = std::move(*listen_on("127.0.0.1"));
    const std::string own = format_address(*local_address(listener_.get()));
    std::thread connecting([&] {
      const std::vector<std::string> addresses{address_, own};
      const std::vector<std::uint8_t> use(2, 1);
      failed_ = zero.transport->connect(addresses, use, monotonic_ns() + 10 * second);
    });
    for (int stream = 0; stream < streams; ++stream) {
      sockets.push_back(call_port(address_));
      Handshake handshake = handshake_of(stream);
      static_cast<void>(shake_hands(handshake, sockets.back().get(), monotonic_ns() + second));
    }
    connecting.join();
  }

  bool is_connected() const { return !failed_; }
  int port() const { return port_of(address_); }
  // Nobody listens there any more.
  void stop_listening() { listener_.reset(); }

  // Another connection of this stream, while `turn` drives rank 0; false after long.
  template <class Turn>
  bool enter(int stream, Turn turn) {
    Descriptor& socket = sockets[static_cast<std::size_t>(stream)];
    socket = call_port(address_);
    Handshake handshake = handshake_of(stream);
    const std::uint64_t until = monotonic_ns() + 5 * second;
    while (monotonic_ns() < until) {
      const Expected<Handshake::Want> want = handshake.step(socket.get());
      if (!want) return false;
      if (*want == Handshake::Want::done) return true;
      turn();
    }
    return false;
  }

  // As the first bytes of a connection: that this rank has so much of the stream.
  void greet(int stream, std::uint64_t position) {
    TcpResumption said;
    said.received(position);
    said.begin_connection();
    const std::span<const std::byte> greeting = said.to_send();
    say(socket_of(stream), {reinterpret_cast<const char*>(greeting.data()), greeting.size()});
  }
  // What rank 0 says so; no_greeting: something else.
  static constexpr std::uint64_t no_greeting = ~std::uint64_t{0};
  std::uint64_t hear_greeting(int stream) {
    const std::string greeting = hear(stream, sizeof(TcpResumption::Greeting));
    TcpResumption listener;
    listener.begin_connection();
    std::uint64_t position = no_greeting;
    if (greeting.size() != sizeof(TcpResumption::Greeting)) return position;
    if (std::memcmp(greeting.data(), listener.to_send().data(), sizeof position) != 0) {
      return position;
    }
    std::memcpy(&position, greeting.data() + sizeof position, sizeof position);
    return position;
  }

  void message(int stream, FrameType type, std::uint32_t step, std::span<const std::byte> data,
               std::size_t offset, std::size_t bytes) {
    MessageOpening opening;
    opening.frame.type = type;
    opening.frame.bytes = static_cast<std::uint32_t>(bytes);
    opening.frame.offset = static_cast<std::uint32_t>(offset);
    opening.header.comm = zero.comm.id;
    opening.header.step = step;
    opening.header.length = static_cast<std::uint32_t>(data.size());
    const std::size_t size = opens(type) ? sizeof opening : sizeof opening.frame;
    say(socket_of(stream), {reinterpret_cast<const char*>(&opening), size});
    say(socket_of(stream), {reinterpret_cast<const char*>(data.data()) + offset, bytes});
  }
  void goodbye(int stream) {
    Frame frame;
    frame.type = FrameType::goodbye;
    say(socket_of(stream), {reinterpret_cast<const char*>(&frame), sizeof frame});
  }

  // Up to `most` bytes; fewer where no more come for a while.
  std::string hear(int stream, std::size_t most) {
    std::string all;
    while (all.size() < most) {
      const Descriptor& socket = socket_of(stream);
      if (!wait_for(socket.get(), POLLIN, monotonic_ns() + second / 5)) break;
      const std::string more = hear_some(socket, most - all.size());
      if (more.empty()) break;
      all += more;
    }
    return all;
  }

  Descriptor& socket_of(int stream) { return sockets[static_cast<std::size_t>(stream)]; }

  TcpRank zero;
  std::vector<Descriptor> sockets;

 private:
  static TcpOptions options_of(int streams) {
    TcpOptions options;
    options.reconnect = Reconnect::always;
    options.streams.at_start = streams;
    return options;
  }
  static Handshake handshake_of(int stream) {
    return Handshake::connector(secret_of_tcp_ranks(), {"pith-data", 1, 0, 2, stream});
  }

  std::string address_;
  Descriptor listener_;
  Error failed_;
};

}  // namespace pith::test
