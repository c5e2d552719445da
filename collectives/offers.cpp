#include "collectives/offers.hpp"

namespace pith {

namespace {

// A ticket as one word, so that the whole offer fits beside the header in a cache line.
std::uint64_t pack(Ticket ticket) {
  return ticket.reach == Ticket::Reach::none ? 0 : (ticket.where << 1) | 1;
}

Bytes bytes_of(void* message, std::size_t size) { return {static_cast<std::byte*>(message), size}; }

}  // namespace

Offers::Message Offers::describe(int rank) {
  Offer& offer = offers_[static_cast<std::size_t>(rank)];
  const Message message{pack(call_.expose(rank, send_)), pack(call_.expose(rank, recv_))};
  offer.sees_send = message.send != 0;
  offer.sees_recv = message.recv != 0;
  return message;
}

Task<Error> Offers::open() {
  const int p = call_.size();
  if (!call_.views()) co_return Error();
  for (int d = 1; d < p; ++d) {
    const auto to = static_cast<std::size_t>(peer(d));
    mine_[to] = describe(peer(d));
    Error error = co_await call_.send(peer(d), open_lane, 0, bytes_of(&mine_[to], sizeof(Message)));
    if (error) co_return error;
  }
  for (int d = 1; d < p; ++d) {
    const int from = peer(p - d);
    Message& message = theirs_[static_cast<std::size_t>(from)];
    Error error = co_await call_.recv(from, open_lane, 0, bytes_of(&message, sizeof message));
    if (error) co_return error;
    Offer& offer = offers_[static_cast<std::size_t>(from)];
    const auto address = [&](std::uint64_t packed) -> std::byte* {
      if (packed == 0) return nullptr;
      return call_.map(from, {packed >> 1, Ticket::Reach::load_store});
    };
    offer.send = address(message.send);
    offer.recv = address(message.recv);
  }
  co_return Error();
}

Task<Error> Offers::close() {
  const int p = call_.size();
  for (int d = 1; d < p; ++d) {
    if (!(*this)[peer(d)].any()) continue;
    Error error = co_await call_.send(peer(d), close_lane, 0, {});
    if (error) co_return error;
  }
  for (int d = 1; d < p; ++d) {
    if (!(*this)[peer(d)].any()) continue;
    Error error = co_await call_.recv(peer(d), close_lane, 0, {});
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace pith
