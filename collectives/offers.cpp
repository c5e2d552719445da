#include "collectives/offers.hpp"

namespace pith {

namespace {

// A ticket as one word, so that the whole offer fits beside the header in a cache line.
constexpr unsigned reach_bits = 2;
std::uint64_t pack(Ticket ticket) {
  const auto reach = static_cast<std::uint64_t>(ticket.reach);
  return ticket.reach == Ticket::Reach::none ? 0 : (ticket.where << reach_bits) | reach;
}
Ticket unpack(std::uint64_t word) {
  return {word >> reach_bits, static_cast<Ticket::Reach>(word & ((1u << reach_bits) - 1))};
}

Bytes bytes_of(void* message, std::size_t size) { return {static_cast<std::byte*>(message), size}; }

}  // namespace

std::uint64_t Offers::describe(int rank, Bytes memory) {
  const Ticket ticket = call_.expose(rank, memory);
  return ticket.reach == Ticket::Reach::copy && !copies_ ? 0 : pack(ticket);
}

Offers::Message Offers::describe(int rank) {
  Offer& offer = offers_[static_cast<std::size_t>(rank)];
  const Message message{describe(rank, send_), describe(rank, recv_)};
  offer.sees_send = message.send != 0;
  offer.sees_recv = message.recv != 0;
  return message;
}

Task<Error> Offers::tell() {
  const int p = call_.size();
  if (!call_.views()) co_return Error();
  for (int d = 1; d < p; ++d) {
    const auto to = static_cast<std::size_t>(peer(d));
    mine_[to] = describe(peer(d));
    Error error = co_await call_.send(peer(d), open_lane, 0, bytes_of(&mine_[to], sizeof(Message)));
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> Offers::hear() {
  const int p = call_.size();
  if (!call_.views()) co_return Error();
  for (int d = 1; d < p; ++d) {
    const int from = peer(p - d);
    Message& message = theirs_[static_cast<std::size_t>(from)];
    Error error = co_await call_.recv(from, open_lane, 0, bytes_of(&message, sizeof message));
    if (error) co_return error;
    Offer& offer = offers_[static_cast<std::size_t>(from)];
    const auto take = [&](std::uint64_t packed, std::byte*& address, std::uint64_t& far) {
      const Ticket ticket = unpack(packed);
      if (ticket.reach == Ticket::Reach::load_store) address = call_.map(from, ticket);
      if (ticket.reach == Ticket::Reach::copy) far = ticket.where;
    };
    take(message.send, offer.send, offer.far_send);
    take(message.recv, offer.recv, offer.far_recv);
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
