// Device memory that ranks read and write in each other: PeerMemory by the driver's means. Ranks of
// one process use addresses, ranks of processes on one host map each other's allocations by IPC.
//
// A slot is our number for an allocation. Rank A describes slot 5 in notes to B until B says that
// it has mapped it; from then on A's offers name (slot 5, offset). A note may be lost where B's
// call is on host memory: then A describes it anew, and B says so anew. An allocation is known by
// the driver's id, since its address may be another one's tomorrow; peers are told to unmap what is
// freed. They have nothing of it in use: who frees memory has no call on it. But CUDA would have it
// unmapped first, and defines nothing for the time between: it may come back to the device late.
// Threads: any.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "core/peer_memory.hpp"
#include "cuda/imported.hpp"

namespace pith::cuda {

class PeerViews final : public PeerMemory {
 public:
  // `near`: by rank, who runs on this host.
  PeerViews(Device& device, std::vector<bool> near);
  ~PeerViews();
  PeerViews(const PeerViews&) = delete;
  PeerViews& operator=(const PeerViews&) = delete;

  // Asks the driver whose memory this is, before a call on it begins: identify() need not until
  // what this returns is let go, for nobody frees memory of a call that has not ended.
  std::uint32_t look_at(Bytes memory);
  void let_go(std::uint32_t slot);
  std::uint64_t identify(Bytes memory) override;
  std::uint64_t expose(int peer, std::uint64_t mine) override;
  std::byte* map(int peer, std::uint64_t word) override;
  bool write_note(int peer, std::span<const std::uint64_t> mine, Note& note) override;
  void read_note(int peer, const Note& note) override;

  // Looks whether one of the allocations that peers know, another one each time, has been freed.
  void look_for_freed();

 private:
  struct Content;  // of a note
  struct Allocation {
    std::uint64_t id = 0;
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    CUipcMemHandle handle{};
    Reach handled = Reach::pending;  // whether the driver gave a handle
    int looks = 0;                   // that have not been let go
  };
  struct Peer {
    bool near = false;
    bool heard = false;  // its process and context are known
    bool reply = false;  // it waits for a note
    std::uint64_t process = 0;
    std::uint64_t context = 0;
    std::shared_ptr<std::atomic<Reach>> its_context;  // of our process: whether we reach it
    Reach our_context = Reach::pending;               // whether it reaches ours
    std::set<std::uint32_t> described;                // slots of ours that it was told of
    std::set<std::uint32_t> mapped;                   // of these, what it has said
    std::set<std::uint32_t> refused;
    std::vector<std::uint32_t> freed;  // slots of ours that it does not know to be
    std::map<std::uint32_t, Imported> theirs;
    std::set<std::uint32_t> unanswered;  // slots of its that it does not know to be mapped
  };

  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  bool same_process(const Peer& peer) const;
  std::optional<Allocation> ask(Bytes memory) const;
  std::uint64_t word_of(CUdeviceptr address, std::size_t bytes) const;
  std::uint32_t slot_of(const Allocation& allocation);
  void forget_within(CUdeviceptr address, std::size_t bytes);
  void forget(std::uint32_t slot);
  void make_handle(Allocation& allocation) const;
  bool describe(Peer& peer, std::span<const std::uint64_t> mine, Content& content);
  static bool answer(Peer& peer, Content& content);
  static bool tell_freed(Peer& peer, Content& content);
  void hear_of(Peer& peer, const Content& content);

  Device& device_;
  std::mutex mutex_;
  std::vector<Peer> peers_;
  std::map<std::uint32_t, Allocation> allocations_;  // by slot
  std::map<CUdeviceptr, std::uint32_t> by_base_;
  std::uint32_t last_slot_ = 0;
  std::uint32_t looked_at_ = 0;
};

}  // namespace pith::cuda
