// Ranks that are processes of one host. Each rank owns one sparse memory file with a ring to every
// other rank, and passes its descriptor to peers that prove they belong to the job. Memory of the
// registered heap (core/heap.hpp) can be read and written by peers directly.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/heap.hpp"
#include "transport/ring_transport.hpp"
#include "transport/shm/shm_attach.hpp"

namespace pith {

struct ShmOptions {
  RingShape shape;       // must be equal on all ranks, or they do not attach
  Heap* heap = nullptr;  // null: the process's heap
  // Private memory of at least this size is copied across processes, where the system allows it;
  // shorter messages go through rings. 0: never.
  std::size_t copy_bytes = std::size_t{256} << 10;
  // Whether any may be copied where a call asks for it.
  bool copies = false;
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
    Descriptor socket;
    Descriptor doorbell;
    std::byte* sleep = nullptr;
    std::byte* ring = nullptr;
    std::byte* heap = nullptr;
    std::size_t heap_bytes = 0;
    pid_t pid = 0;
  };

  // In every rank's own memory file: a token to identify the process, and which other ranks it can
  // copy from and to (cross-memory attach; containers and seccomp may forbid that).
  struct CopyBoard {
    std::uint64_t token;
    std::uint8_t reaches[ranks_on_board];
  };
  CopyBoard& board_at(std::byte* memory) const {
    return *reinterpret_cast<CopyBoard*>(memory + sizeof(RingSleep));
  }
  bool can_copy(const Remote& peer, const ShmRendezvous::Met& met) const;
  Error copied(ssize_t moved, std::size_t wanted, int peer) const;

  bool check_peers() override;
  bool report_departed();
  bool add_peer(ShmRendezvous::Met met);
  bool map_peer(Remote& remote, const ShmRendezvous::Met& met);
  void unmap_peer(Remote& remote);
  bool watch(int fd, int rank);
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
  Heap& heap_;
  ShmRendezvous rendezvous_;
  Descriptor segment_;
  Descriptor doorbell_;
  Descriptor events_;  // epoll: the doorbell, and the sockets of all living peers
  std::byte* memory_ = nullptr;
  std::vector<Remote> remotes_;
  struct Departed {
    int rank;
    Error error;
  };
  std::vector<Departed> departed_;  // no receive has waited for them since
};

}  // namespace pith
