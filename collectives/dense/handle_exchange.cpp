#include "collectives/dense/handle_exchange.hpp"

namespace pith {

namespace {

// Packs a handle into one word, so that the whole message fits into a cache line with its header.
constexpr unsigned reach_bits = 2;
std::uint64_t pack(MemoryHandle handle) {
  const auto reach = static_cast<std::uint64_t>(handle.reach);
  return handle.reach == MemoryHandle::Reach::none ? 0 : (handle.where << reach_bits) | reach;
}
MemoryHandle unpack(std::uint64_t word) {
  return {word >> reach_bits, static_cast<MemoryHandle::Reach>(word & ((1u << reach_bits) - 1))};
}

// Set in a message's words by a rank whose call is on device memory: in `send` always, in `recv`
// where a note follows. Handles leave this bit free.
constexpr std::uint64_t mark = std::uint64_t{1} << 63;
constexpr std::uint16_t note_lane = 102;
static_assert(PeerMemory::words_end <= mark >> reach_bits);

Bytes bytes_of(void* message, std::size_t size) { return {static_cast<std::byte*>(message), size}; }

}  // namespace

PeerMemory* HandleExchange::find_peer_memory(Compute& compute) {
  const auto* reached = dynamic_cast<const ReachedByPeers*>(&compute);
  return reached ? reached->peer_memory() : nullptr;
}

// A buffer that a rank does not have is not exposed as address null: the peer would take the null
// for "out of reach", and would not close what this rank takes for open.
// `by_messages`: what the transport prefers for the peer, asked at first use, so that both buffers
// go alike.
std::uint64_t HandleExchange::describe(int rank, Bytes memory, std::optional<bool>& by_messages) {
  if (!memory.data) return 0;
  using Reach = MemoryHandle::Reach;
  const MemoryHandle handle = call_.expose(rank, memory);
  if (handle.reach == Reach::copy && copies_ == Copies::never) return 0;
  if (handle.reach != Reach::none || copies_ != Copies::always) return pack(handle);
  const Route& route = call_.route(rank);
  if (!by_messages) by_messages = route.transport->prefers_messages(route.peer);
  return *by_messages ? 0 : pack(call_.expose(rank, memory, true));
}

HandleExchange::Message HandleExchange::describe(int rank) {
  std::optional<bool> by_messages;
  const Message message{describe(rank, send_, by_messages), describe(rank, recv_, by_messages)};
  PeerHandles& theirs = handles_[static_cast<std::size_t>(rank)];
  theirs.sees_send = message.send != 0;
  theirs.sees_recv = message.recv != 0;
  return message;
}

std::uint64_t HandleExchange::expose(int rank, std::uint64_t mine) {
  const std::uint64_t word = peer_memory_ ? peer_memory_->expose(number_of(rank), mine) : 0;
  if (word == 0) return 0;
  call_.comm().exposed = true;
  return pack({word, MemoryHandle::Reach::load_store});
}

Task<Error> HandleExchange::around(Task<Error> work) {
  Error error = co_await tell();
  if (error) co_return error;
  error = co_await std::move(work);
  if (error || !any()) co_return error;
  co_return co_await close();
}

Task<Error> HandleExchange::tell() {
  const int p = call_.size();
  if (!call_.views()) co_return Error();
  if (on_device_) {
    Error error = co_await tell_on_device();
    if (error) co_return error;
    co_return co_await hear();
  }
  for (int d = 1; d < p; ++d) {
    const auto to = static_cast<std::size_t>(peer(d));
    mine_[to] = describe(peer(d));
    Error error = co_await call_.send(peer(d), open_lane, 0, bytes_of(&mine_[to], sizeof(Message)));
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> HandleExchange::tell_on_device() {
  const int p = call_.size();
  std::array<std::uint64_t, 2> memory{};
  if (peer_memory_) memory = {peer_memory_->identify(send_), peer_memory_->identify(recv_)};
  PeerMemory::Note note;
  for (int d = 1; d < p; ++d) {
    const int to = peer(d);
    Message& message = mine_[static_cast<std::size_t>(to)];
    message = {expose(to, memory[0]), expose(to, memory[1])};
    PeerHandles& theirs = handles_[static_cast<std::size_t>(to)];
    theirs.sees_send = message.send != 0;
    theirs.sees_recv = message.recv != 0;
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

Task<Error> HandleExchange::hear() {
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

Error HandleExchange::take(int from, Message message) {
  const bool peer_on_device = (message.send & mark) != 0;
  message.send &= ~mark;
  message.recv &= ~mark;
  if (!peer_on_device) [[likely]] {
    take_host(from, message);
    return {};
  }
  return on_device_ ? take_device(from, message) : Error();  // the peer knows that ours is not
}

void HandleExchange::take_host(int from, Message message) {
  PeerHandles& theirs = handles_[static_cast<std::size_t>(from)];
  const auto look = [&](std::uint64_t packed, std::byte*& address, std::uint64_t& far) {
    const MemoryHandle handle = unpack(packed);
    if (handle.reach == MemoryHandle::Reach::load_store) address = call_.map(from, handle);
    if (handle.reach == MemoryHandle::Reach::copy) far = handle.where;
  };
  look(message.send, theirs.send, theirs.far_send);
  look(message.recv, theirs.recv, theirs.far_recv);
  if (!on_device_) [[likely]]
    return;
  theirs.copies_only = true;
  theirs.sees_send = theirs.sees_recv = false;  // ours are device memory
}

Error HandleExchange::take_device(int from, Message message) {
  PeerHandles& theirs = handles_[static_cast<std::size_t>(from)];
  const auto look = [&](std::uint64_t packed, std::byte*& address) {
    if (packed == 0) return true;
    address = peer_memory_ ? peer_memory_->map(number_of(from), unpack(packed).where) : nullptr;
    return address != nullptr;
  };
  if (look(message.send, theirs.send) && look(message.recv, theirs.recv)) return {};
  return call_.fail(Error(Code::internal, "a rank offered device memory that is not known here"));
}

Task<Error> HandleExchange::close() {
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
