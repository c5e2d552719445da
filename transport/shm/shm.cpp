#include "transport/shm/shm.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ranges>

#include <fmt/format.h>

#include "core/descriptor_limit.hpp"

namespace pith {

namespace {

constexpr std::uint32_t doorbell_event = ~0u;
constexpr std::uint32_t bell_event = ~0u - 1;
// A sleeping rank checks its peers about once in a millisecond, which are many where some are far.
constexpr unsigned checks_per_look = 32;
constexpr char goodbye = 'g';

std::byte* map_shared(int fd, std::size_t offset, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                      static_cast<off_t>(offset));
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void unmap(std::byte* memory, std::size_t bytes) {
  if (memory) munmap(memory, bytes);
}

// A memory file that its owner can shrink could kill this process by SIGBUS.
bool is_firm(int fd, std::size_t bytes) {
  struct stat status;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &status) == 0 &&
         static_cast<std::size_t>(status.st_size) >= bytes;
}

Error copied(ssize_t moved, std::size_t wanted, int peer) {
  if (moved == static_cast<ssize_t>(wanted)) [[likely]]
    return {};
  const char* why = moved < 0 ? std::strerror(errno) : "it ended early";
  return {Code::remote, fmt::format("rank {}: copying from or to its memory: {}", peer, why), peer};
}

}  // namespace

ShmTransport::ShmTransport(Scheduler& scheduler, Mailbox& mailbox, int rank, int ranks,
                           const Secret& secret, const ShmOptions& options)
    : RingTransport(scheduler, mailbox, ranks, options.shape),
      rank_(rank),
      ranks_(ranks),
      copy_bytes_(options.copy_bytes),
      copies_(options.copies || copy_bytes_ != 0),
      near_(options.near),
      heap_(options.heap ? *options.heap : Heap::process()),
      rendezvous_(rank, ranks, secret),
      remotes_(static_cast<std::size_t>(ranks)) {}

ShmTransport::~ShmTransport() {
  say_goodbye();
  for (Remote& remote : remotes_) unmap_peer(remote);
  unmap(memory_, ring_offset(ranks_));
}

bool ShmTransport::watch(int fd, std::uint32_t what) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = what;
  return epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

Expected<std::string> ShmTransport::listen() {
  const std::size_t bytes = ring_offset(ranks_);
  segment_ = Descriptor(
      open_with_room([] { return memfd_create("pith-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING); }));
  if (!segment_) return system_error("memfd_create for the rings", errno);
  if (ftruncate(segment_.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error(fmt::format("{} bytes for the rings of {} ranks", bytes, ranks_), errno);
  }
  fcntl(segment_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  memory_ = map_shared(segment_.get(), 0, bytes);
  if (!memory_) return system_error("mmap of the rings", errno);
  doorbell_ = Descriptor(open_with_room([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }));
  if (!doorbell_) return system_error("eventfd for the doorbell", errno);
  events_ = Descriptor(open_with_room([] { return epoll_create1(EPOLL_CLOEXEC); }));
  if (!events_ || !watch(doorbell_.get(), doorbell_event)) return system_error("epoll", errno);
  set_own_sleep(reinterpret_cast<RingSleep*>(memory_), doorbell_.get());
  Board& board = board_at(memory_);
  if (getrandom(&board.token, sizeof board.token, 0) != sizeof board.token) board.token = 0;
  Expected<std::string> name = rendezvous_.listen(&board);
  const auto far = [this](int peer) { return is_far(peer); };
  if (!name || std::ranges::none_of(std::views::iota(0, ranks_), far)) return name;
  if (Error error = bell_.listen(ShmBell::of(*name))) return error;
  if (!watch(bell_.descriptor(), bell_event)) return system_error("epoll", errno);
  return name;
}

Error ShmTransport::attach(std::span<const std::string> names, std::vector<bool>& attached,
                           const Patience& patience) {
  attached.assign(static_cast<std::size_t>(ranks_), false);
  const int mine[3] = {segment_.get(), doorbell_.get(), heap_.fd()};
  return rendezvous_.meet(names, shape_, mine, heap_.size(), patience, [&](ShmRendezvous::Met met) {
    const auto rank = static_cast<std::size_t>(met.rank);
    if (is_far(met.rank)) remotes_[rank].bell = ShmBell::of(names[rank]);
    attached[rank] = add_peer(std::move(met));
  });
}

bool ShmTransport::map_peer(Remote& remote, const ShmRendezvous::Met& met) {
  if (!is_firm(met.descriptors.segment.get(), ring_offset(ranks_))) return false;
  const int segment = met.descriptors.segment.get();
  remote.sleep = map_shared(segment, 0, sleep_bytes);
  remote.ring = map_shared(segment, ring_offset(rank_), shape_.bytes());
  if (!remote.sleep || !remote.ring) return false;
  if (met.heap_bytes == 0) return true;
  if (!is_firm(met.descriptors.heap.get(), met.heap_bytes)) return false;
  remote.heap = map_shared(met.descriptors.heap.get(), 0, met.heap_bytes);
  if (!remote.heap) return false;
  remote.heap_bytes = met.heap_bytes;
  madvise(remote.heap, remote.heap_bytes, MADV_HUGEPAGE);
  return true;
}

// The token distinguishes our peer from another process of the same number.
bool ShmTransport::can_copy(const Remote& peer, const ShmRendezvous::Met& met) const {
  const std::uint64_t expected = board_at(peer.sleep).token;
  std::uint64_t token = 0;
  const iovec here{&token, sizeof token};
  const iovec there{reinterpret_cast<void*>(met.board), sizeof token};
  return copies_ && met.pid > 0 && met.rank < static_cast<int>(ranks_on_board) &&
         process_vm_readv(met.pid, &here, 1, &there, 1, 0) == sizeof token && token == expected &&
         token != 0;
}

void ShmTransport::unmap_peer(Remote& remote) {
  unmap(remote.sleep, sleep_bytes);
  unmap(remote.ring, shape_.bytes());
  unmap(remote.heap, remote.heap_bytes);
  remote.sleep = remote.ring = remote.heap = nullptr;
}

bool ShmTransport::add_peer(ShmRendezvous::Met met) {
  Remote& peer = remote(met.rank);
  const bool far = is_far(met.rank);
  const auto watched = [&] {
    return far || watch(met.socket.get(), static_cast<std::uint32_t>(met.rank));
  };
  if (joined(met.rank) || !map_peer(peer, met) || !watched()) {
    if (!joined(met.rank)) unmap_peer(peer);
    return false;
  }
  if (far) {
    far_.push_back(met.rank);
  } else {
    peer.socket = std::move(met.socket);
    peer.doorbell = std::move(met.descriptors.doorbell);
  }
  if (can_copy(peer, met)) {
    peer.pid = met.pid;
    board_at(memory_).reaches[met.rank] = 1;
  }
  Link link;
  link.inbound = peer.ring;
  link.outbound = memory_ + ring_offset(met.rank);
  link.peer_sleep = reinterpret_cast<RingSleep*>(peer.sleep);
  link.doorbell = peer.doorbell.get();
  join(met.rank, link);
  return true;
}

void ShmTransport::drop(int rank) {
  if (!joined(rank)) return;
  part(rank);
  std::erase(far_, rank);
  unmap_peer(remote(rank));
  remote(rank) = Remote();
}

Error ShmTransport::connect(std::span<const std::string>, std::span<const std::uint8_t> use,
                            const Patience&) {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (use[static_cast<std::size_t>(rank)] == 0) drop(rank);
  }
  return {};
}

void ShmTransport::close(std::uint64_t) { say_goodbye(); }

// A forked child's descriptors are empty: it says nothing in its parent's name.
void ShmTransport::say_goodbye() {
  if (memory_ && events_) board_at(memory_).fate.store(Fate::left, std::memory_order_release);
  for (Remote& peer : remotes_) {
    if (!peer.socket) continue;
    [[maybe_unused]] const auto sent =
        send(peer.socket.get(), &goodbye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    peer.socket = Descriptor();
  }
}

bool ShmTransport::check_peers() {
  std::array<epoll_event, 16> events;
  const int count = epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool found = false;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t rank = events[static_cast<std::size_t>(i)].data.u32;
    if (rank == doorbell_event) continue;
    if (rank == bell_event) {
      bell_.drain();
      continue;
    }
    hear_from(static_cast<int>(rank));
    found = true;
  }
  if (!far_.empty() && ++checks_ % checks_per_look == 0) found |= look_at_far_peers();
  return report_departed() || found;
}

bool ShmTransport::look_at_far_peers() {
  const auto is_gone = [this](int rank) {
    const Fate fate = board_at(remote(rank).sleep).fate.load(std::memory_order_acquire);
    if (fate != Fate::present) depart(rank, fate == Fate::left);
    return fate != Fate::present;
  };
  return std::erase_if(far_, is_gone) != 0;
}

// A peer that is gone is lost once a receive waits for something it never sent.
bool ShmTransport::report_departed() {
  for (std::size_t i = 0; i < departed_.size(); ++i) {
    drain(departed_[i].rank);
    if (!awaited(departed_[i].rank)) continue;
    const Departed departed = std::move(departed_[i]);
    departed_.erase(departed_.begin() + static_cast<std::ptrdiff_t>(i));
    if (on_peer_lost) on_peer_lost(departed.rank, departed.error);
    return true;
  }
  return false;
}

// While the peer lives, its socket carries nothing but the goodbye.
void ShmTransport::hear_from(int rank) {
  Remote& peer = remote(rank);
  if (!peer.socket) return;
  char word = 0;
  const ssize_t length = recv(peer.socket.get(), &word, 1, MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr);
  peer.socket = Descriptor();
  const bool in_order = length == 1 && word == goodbye;
  Fate known = Fate::present;
  if (!in_order) board_at(peer.sleep).fate.compare_exchange_strong(known, Fate::died);
  depart(rank, in_order);
}

// What the peer has sent before is in its ring and is still delivered.
void ShmTransport::depart(int rank, bool in_order) {
  const Error error = in_order ? peer_left(rank) : peer_lost(rank, "its process has ended");
  end_sends(rank, error);
  departed_.push_back({rank, error});
}

MemoryHandle ShmTransport::expose(int peer, Bytes memory) {
  if (memory.kind != MemoryKind::host || !joined(peer)) return {};
  if (heap_.contains(memory.data, memory.size)) {
    return {heap_.offset_of(memory.data), MemoryHandle::Reach::load_store};
  }
  const bool pays = copy_bytes_ != 0 && memory.size >= copy_bytes_;
  return pays ? expose_for_copies(peer, memory) : MemoryHandle();
}

MemoryHandle ShmTransport::expose_for_copies(int peer, Bytes memory) {
  if (!copies_ || memory.kind != MemoryKind::host || !joined(peer)) return {};
  if (rank_ >= static_cast<int>(ranks_on_board)) return {};
  if (board_at(remote(peer).sleep).reaches[rank_] == 0) return {};
  return {reinterpret_cast<std::uint64_t>(memory.data), MemoryHandle::Reach::copy};
}

Error ShmTransport::copy_from(int peer, std::uint64_t where, Bytes into) {
  const iovec here{into.data, into.size};
  const iovec there{reinterpret_cast<void*>(where), into.size};
  return copied(process_vm_readv(remote(peer).pid, &here, 1, &there, 1, 0), into.size, peer);
}

Error ShmTransport::copy_to(int peer, std::uint64_t where, Bytes from) {
  const iovec here{from.data, from.size};
  const iovec there{reinterpret_cast<void*>(where), from.size};
  return copied(process_vm_writev(remote(peer).pid, &here, 1, &there, 1, 0), from.size, peer);
}

std::byte* ShmTransport::map(int peer, MemoryHandle handle) {
  Remote& owner = remote(peer);
  return handle.where < owner.heap_bytes ? owner.heap + handle.where : nullptr;
}

}  // namespace pith
