// Ranks that are processes of one host. Each rank owns one sparse memory file with a ring to every
// other rank, and passes its descriptor to peers that prove they belong to the job. Memory of the
// registered heap (core/heap.hpp) can be read and written by peers directly.
//
// For each peer a rank keeps a socket, whose end tells of the peer's death, and the peer's
// doorbell. In larger jobs it does so for neighbours only (keep_descriptors.hpp): other peers are
// far. These are woken by a datagram, and where one has left or died its memory says so: it writes
// that itself, or its neighbours do.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/heap.hpp"
#include "transport/keep_descriptors.hpp"
#include "transport/ring_transport.hpp"
#include "transport/shm/shm_attach.hpp"
#include "transport/shm/shm_bell.hpp"

namespace pith {

struct ShmOptions {
  RingShape shape;       // must be equal on all ranks, or they do not attach
  Heap* heap = nullptr;  // null: the process's heap
  // Private memory of at least this size is copied across processes, where the system allows it;
  // shorter messages go through rings. 0: never.
  std::size_t copy_bytes = std::size_t{256} << 10;
  // Whether any may be copied where a call asks for it.
  bool copies = false;
  bool (*near)(int a, int b, int ranks) = keep_descriptors;  // other pairs are far
};

class ShmTransport final : public RingTransport {
 public:
  using Secret = pith::Secret;

  ShmTransport(Scheduler& scheduler, Mailbox& mailbox, int rank, int ranks, const Secret& secret,
               const ShmOptions& options = {});
  ~ShmTransport() override;

  // Creates the shared memory; returns the name by which peers attach.
  Expected<std::string> listen() override;
  Error attach(std::span<const std::string> names, std::vector<bool>& attached,
               const Patience& patience) override;
  // Drops unused peers; the others are attached already.
  Error connect(std::span<const std::string> names, std::span<const std::uint8_t> use,
                const Patience& patience) override;
  // Detaches an attached peer. Nothing may have been sent to it or received from it.
  void drop(int peer);
  // Later messages of the peers are refused or ignored.
  void close(std::uint64_t deadline_ns) override;

  std::string_view name() const override { return "shm"; }
  MemoryHandle expose(int peer, Bytes memory) override;
  std::byte* map(int peer, MemoryHandle handle) override;
  MemoryHandle expose_for_copies(int peer, Bytes memory) override;
  Error copy_from(int peer, std::uint64_t where, Bytes into) override;
  Error copy_to(int peer, std::uint64_t where, Bytes from) override;
  int descriptor() const override { return events_.get(); }

 private:
  static constexpr std::size_t sleep_bytes = 4096;
  static constexpr std::size_t ranks_on_board = 4000;

  struct Remote {
    Descriptor socket;    // empty: it is far, or gone
    Descriptor doorbell;  // likewise
    AbstractName bell;    // of a far one
    std::byte* sleep = nullptr;
    std::byte* ring = nullptr;
    std::byte* heap = nullptr;
    std::size_t heap_bytes = 0;
    pid_t pid = 0;
  };

  enum class Fate : std::uint32_t { present, left, died };
  // In every rank's own memory file: a token to identify the process, what far peers are to know,
  // and which other ranks it can copy from and to (cross-memory attach; containers and seccomp may
  // forbid that).
  struct Board {
    std::uint64_t token;
    std::atomic<Fate> fate;
    std::uint8_t reaches[ranks_on_board];
  };
  static_assert(sizeof(RingSleep) + sizeof(Board) <= sleep_bytes);
  Board& board_at(std::byte* memory) const {
    return *reinterpret_cast<Board*>(memory + sizeof(RingSleep));
  }
  bool can_copy(const Remote& peer, const ShmRendezvous::Met& met) const;

  bool is_far(int peer) const { return peer != rank_ && !near_(rank_, peer, ranks_); }
  void ring(int peer) override { bell_.ring(remote(peer).bell); }
  bool check_peers() override;
  bool look_at_far_peers();
  void depart(int rank, bool in_order);
  bool report_departed();
  bool add_peer(ShmRendezvous::Met met);
  bool map_peer(Remote& remote, const ShmRendezvous::Met& met);
  void unmap_peer(Remote& remote);
  bool watch(int fd, std::uint32_t what);
  void say_goodbye();
  void hear_from(int rank);
  std::size_t ring_offset(int to) const {
    return sleep_bytes + static_cast<std::size_t>(to) * shape_.bytes();
  }
  Remote& remote(int rank) { return remotes_[static_cast<std::size_t>(rank)]; }

  const int rank_;
  const int ranks_;
  const std::size_t copy_bytes_;
  const bool copies_;
  bool (*const near_)(int a, int b, int ranks);
  Heap& heap_;
  ShmRendezvous rendezvous_;
  Descriptor segment_;
  Descriptor doorbell_;
  ShmBell bell_;       // for far peers
  Descriptor events_;  // epoll: the doorbell, the bell, and the sockets of near peers that live
  std::byte* memory_ = nullptr;
  std::vector<Remote> remotes_;
  std::vector<int> far_;  // far peers that are present as far as this rank knows
  unsigned checks_ = 0;
  struct Departed {
    int rank;
    Error error;
  };
  std::vector<Departed> departed_;  // no receive has waited for them since
};

}  // namespace pith
