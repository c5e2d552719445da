// Device memory that ranks read and write in each other: PeerMemory by the driver's means. Ranks of
// one process use addresses; ranks of processes on one host map each other's allocations, by IPC
// or, where memory is mapped by hand (cuMemMap), by descriptors of the physical memory.
//
// A slot is our number for an allocation. Rank A describes slot 5 in notes to B until B says that
// it has mapped it; from then on A's offers name (slot 5, offset). A note may be lost where B's
// call is on host memory: then A describes it anew, and B says so anew. An allocation is known by
// the driver's id, since its address may be another one's tomorrow; peers are told to unmap what is
// freed. They have nothing of it in use: who frees memory has no call on it. But CUDA would have it
// unmapped first, and defines nothing for the time between: it may come back to the device late.
//
// Memory that is mapped by hand has a slot for each stretch of mappings that a call's vector lies
// in, first to last and no more, so that stretches may overlap: what a vector does not need may be
// unmapped while a call on it goes on, and then peers unmap the stretches that it was in.
// Descriptors go to a socket of the peer's, which asks for them by a note. Memory of pools is
// reached within the process only: the default pools cannot be exported, and of others every tensor
// would be an allocation to map, which all processes have to let go of before its owner frees it.
// Threads: any.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "core/peer_memory.hpp"
#include "cuda/allocation.hpp"
#include "cuda/imported.hpp"

namespace pith::cuda {

class PeerAccess final : public PeerMemory {
 public:
  // `near`: by rank, who runs on this host.
  PeerAccess(Device& device, std::vector<bool> near);
  ~PeerAccess();
  PeerAccess(const PeerAccess&) = delete;
  PeerAccess& operator=(const PeerAccess&) = delete;

  // Asks the driver whose memory this is, before a call on it begins: identify() need not until
  // what this returns is let go, for nobody frees memory of a call that has not ended.
  std::uint32_t look_at(Bytes memory);
  void let_go(std::uint32_t slot);
  std::uint64_t identify(Bytes memory) override;
  std::uint64_t expose(int peer, std::uint64_t mine) override;
  std::byte* map(int peer, std::uint64_t word) override;
  bool write_note(int peer, std::span<const std::uint64_t> mine, Note& note) override;
  void read_note(int peer, const Note& note) override;

  // Looks whether one of the allocations that peers know, another one each time, has been freed; of
  // many parts, at some each time.
  void look_for_freed();

 private:
  struct Content;  // of a note
  struct Known : Allocation {
    CUipcMemHandle handle{};
    Reach handled = Reach::pending;  // whether other processes can map it
    int looks = 0;                   // that have not been let go
  };
  using Range = std::pair<CUdeviceptr, CUdeviceptr>;
  struct Peer {
    bool near = false;
    bool heard = false;  // its process and context are known
    bool reply = false;  // it waits for a note
    std::uint64_t process = 0;
    std::uint64_t context = 0;
    CUdevice device = 0;
    DescriptorSocket::Address socket;                 // its, where descriptors go
    std::uint64_t secret = 0;                         // that it knows of our socket
    std::shared_ptr<std::atomic<bool>> unreachable;   // its socket is
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
  DeviceSet devices_here();
  bool is_of_use(const Allocation& allocation) const;
  std::uint64_t word_of(CUdeviceptr address, std::size_t bytes) const;
  Known* find(const Allocation& like, std::uint32_t& slot);
  std::uint32_t add(Known allocation);
  std::vector<std::uint32_t> slots_within(CUdeviceptr address, CUdeviceptr end) const;
  void forget(std::uint32_t slot);
  bool has_other_processes();
  void make_handle(Known& allocation);
  void say_that_it_is_staged(const char* why);
  bool describe(Peer& peer, std::span<const std::uint64_t> mine, Content& content);
  static bool answer(Peer& peer, Content& content);
  static bool tell_freed(Peer& peer, Content& content);
  void hear_of(Peer& peer, const Content& content);
  void hear_of_memory(Peer& peer, const Content& content);
  void give_descriptors(Peer& peer, std::uint32_t slot);
  bool open_socket(Peer& peer);

  Device& device_;
  std::mutex mutex_;
  std::vector<Peer> peers_;
  std::map<std::uint32_t, Known> allocations_;  // by slot
  std::map<Range, std::uint32_t> by_range_;
  const CUdevice device_number_;
  std::shared_ptr<DescriptorSocket> socket_;  // opened when it is needed
  std::atomic<bool> said_{false};             // why memory is staged
  std::uint32_t last_slot_ = 0;
  std::vector<std::uint32_t> spare_slots_;
  std::uint32_t looked_at_ = 0;  // is next
  std::size_t looked_at_part_ = 0;
};

}  // namespace pith::cuda
