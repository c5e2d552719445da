#include "collectives/dense/offers.hpp"

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

// Marks of a rank whose call is on device memory; tickets leave these bits free.
constexpr std::uint64_t mark = std::uint64_t{1} << 63;
constexpr std::uint16_t note_lane = 102;
static_assert(PeerMemory::words_end <= mark >> reach_bits);

Bytes bytes_of(void* message, std::size_t size) { return {static_cast<std::byte*>(message), size}; }

}  // namespace

PeerMemory* Offers::find_peer_memory(Compute& compute) {
  const auto* reached = dynamic_cast<const ReachedByPeers*>(&compute);
  return reached ? reached->peer_memory() : nullptr;
}

// A buffer that a rank does not have is no place at null: a peer would find nothing there, and not
// close what we had opened.
std::uint64_t Offers::describe(int rank, Bytes memory) {
  if (!memory.data) return 0;
  const Ticket ticket = call_.expose(rank, memory);
  return ticket.reach == Ticket::Reach::copy && !copies_ ? 0 : pack(ticket);
}

Offers::Message Offers::describe(int rank) {
  const Message message{describe(rank, send_), describe(rank, recv_)};
  Offer& offer = offers_[static_cast<std::size_t>(rank)];
  offer.sees_send = message.send != 0;
  offer.sees_recv = message.recv != 0;
  return message;
}

std::uint64_t Offers::expose(int rank, std::uint64_t mine) {
  const std::uint64_t word = peer_memory_ ? peer_memory_->expose(number_of(rank), mine) : 0;
  if (word == 0) return 0;
  call_.comm().exposed = true;
  return pack({word, Ticket::Reach::load_store});
}

Task<Error> Offers::around(Task<Error> work) {
  Task<Error> opening = tell();
  Error error = co_await std::move(opening);
  if (error) co_return error;
  error = co_await std::move(work);
  if (error || !any()) co_return error;
  Task<Error> closing = close();
  co_return co_await std::move(closing);
}

Task<Error> Offers::tell() {
  const int p = call_.size();
  if (!call_.views()) co_return Error();
  if (on_device_) {
    Task<Error> told = tell_on_device();
    Error error = co_await std::move(told);
    if (error) co_return error;
    Task<Error> answers = hear();
    co_return co_await std::move(answers);
  }
  for (int d = 1; d < p; ++d) {
    const auto to = static_cast<std::size_t>(peer(d));
    mine_[to] = describe(peer(d));
    Error error = co_await call_.send(peer(d), open_lane, 0, bytes_of(&mine_[to], sizeof(Message)));
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> Offers::tell_on_device() {
  const int p = call_.size();
  std::array<std::uint64_t, 2> memory{};
  if (peer_memory_) memory = {peer_memory_->identify(send_), peer_memory_->identify(recv_)};
  PeerMemory::Note note;
  for (int d = 1; d < p; ++d) {
    const int to = peer(d);
    Message& message = mine_[static_cast<std::size_t>(to)];
    message = {expose(to, memory[0]), expose(to, memory[1])};
    Offer& offer = offers_[static_cast<std::size_t>(to)];
    offer.sees_send = message.send != 0;
    offer.sees_recv = message.recv != 0;
    const bool noted = peer_memory_ && peer_memory_->write_note(number_of(to), memory, note);
    message.send |= mark;
    if (noted) message.recv |= mark;
    Error error = co_await call_.send(to, open_lane, 0, bytes_of(&message, sizeof message));
    if (error) co_return error;
    if (!noted) continue;
    error = co_await call_.send(to, note_lane, 0, bytes_of(&note, sizeof note));
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> Offers::hear() {
  const int p = call_.size();
  if (!call_.views() || heard_) co_return Error();
  heard_ = true;
  for (int d = 1; d < p; ++d) {
    const int from = peer(p - d);
    Message& message = theirs_[static_cast<std::size_t>(from)];
    Error error = co_await call_.recv(from, open_lane, 0, bytes_of(&message, sizeof message));
    if (error) co_return error;
    if ((message.recv & mark) != 0) [[unlikely]] {
      PeerMemory::Note note;
      error = co_await call_.recv(from, note_lane, 0, bytes_of(&note, sizeof note));
      if (error) co_return error;
      if (peer_memory_) peer_memory_->read_note(number_of(from), note);
    }
    error = take(from, message);
    if (error) co_return error;
  }
  co_return Error();
}

Error Offers::take(int from, Message message) {
  const bool peer_on_device = (message.send & mark) != 0;
  message.send &= ~mark;
  message.recv &= ~mark;
  if (!peer_on_device) [[likely]] {
    take_host(from, message);
    return {};
  }
  return on_device_ ? take_device(from, message) : Error();  // the peer knows that we are not
}

void Offers::take_host(int from, Message message) {
  Offer& offer = offers_[static_cast<std::size_t>(from)];
  const auto look = [&](std::uint64_t packed, std::byte*& address, std::uint64_t& far) {
    const Ticket ticket = unpack(packed);
    if (ticket.reach == Ticket::Reach::load_store) address = call_.map(from, ticket);
    if (ticket.reach == Ticket::Reach::copy) far = ticket.where;
  };
  look(message.send, offer.send, offer.far_send);
  look(message.recv, offer.recv, offer.far_recv);
  if (!on_device_) [[likely]]
    return;
  offer.apart = true;
  offer.sees_send = offer.sees_recv = false;  // ours are out of its reach
}

Error Offers::take_device(int from, Message message) {
  Offer& offer = offers_[static_cast<std::size_t>(from)];
  const auto look = [&](std::uint64_t packed, std::byte*& address) {
    if (packed == 0) return true;
    address = peer_memory_ ? peer_memory_->map(number_of(from), unpack(packed).where) : nullptr;
    return address != nullptr;
  };
  if (look(message.send, offer.send) && look(message.recv, offer.recv)) return {};
  return call_.fail(Error(Code::internal, "a rank offered device memory that is not known here"));
}

Task<Error> Offers::close() {
  const int p = call_.size();
  if (on_device_) {
    const Fence all = call_.run<CopyKernel>({nullptr, nullptr, 0});
    co_await call_.until(all);
    if (call_.comm().revoked) co_return call_.comm().revoked;  // the device may have failed
  }
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
