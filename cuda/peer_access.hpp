// PeerMemory for CUDA: device memory that ranks read and write directly in each other. Ranks of one
// process use addresses. Ranks of processes on one host map each other's allocations by IPC or, for
// memory mapped by hand (cuMemMap), by descriptors of the physical memory.
//
// A slot is the owner's number for an allocation. Rank A describes slot 5 in notes to B until B
// confirms that it is mapped; from then on A's words name (slot 5, offset). Notes may be lost where
// B's call is on host memory: both then repeat theirs. An allocation is identified by the driver's
// id, since its address may be reused. Peers are told to unmap freed memory; no call of theirs uses
// it, since its owner frees it only between calls. CUDA leaves memory undefined that is freed
// before peers unmap it: it may return to the device late.
//
// Memory mapped by hand has a slot for each stretch of mappings that exactly holds a call's vector,
// so stretches may overlap. Mappings outside a vector may be unmapped during a call; peers then
// unmap the stretches that contained them. Descriptors go to a socket of the peer, which asks for
// them by a note. Pool memory is reached only within the process: default pools cannot be exported,
// and in others every tensor would be an allocation that all processes must unmap before its owner
// frees it.
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
  // `near[rank]`: the rank runs on this host.
  PeerAccess(Device& device, std::vector<bool> near);
  ~PeerAccess();
  PeerAccess(const PeerAccess&) = delete;
  PeerAccess& operator=(const PeerAccess&) = delete;

  // Asks the driver about this memory before a call on it begins. Until let_go() of the returned
  // slot, identify() need not ask again: nobody frees memory of a running call.
  std::uint32_t look_at(Bytes memory);
  void let_go(std::uint32_t slot);
  std::uint64_t identify(Bytes memory) override;
  std::uint64_t expose(int peer, std::uint64_t mine) override;
  std::byte* map(int peer, std::uint64_t word) override;
  bool write_note(int peer, std::span<const std::uint64_t> mine, Note& note) override;
  void read_note(int peer, const Note& note) override;

  // Checks one known allocation per call, in turn, for having been freed; of one with many parts,
  // some parts per call.
  void look_for_freed();

 private:
  struct Content;  // of a note
  struct Known : Allocation {
    CUipcMemHandle handle{};
    Reach handled = Reach::pending;  // whether other processes can map it
    int looks = 0;                   // calls to look_at() without let_go() yet
  };
  using Range = std::pair<CUdeviceptr, CUdeviceptr>;
  struct Peer {
    bool near = false;
    bool heard = false;  // its process and context are known
    bool reply = false;  // it waits for a note of ours
    std::uint64_t process = 0;
    std::uint64_t context = 0;
    CUdevice device = 0;
    DescriptorSocket::Address socket;                 // where it receives descriptors
    std::uint64_t secret = 0;                         // what it has to show to our socket
    std::shared_ptr<std::atomic<bool>> unreachable;   // its socket is gone
    std::shared_ptr<std::atomic<Reach>> its_context;  // same process: whether we reach its context
    Reach our_context = Reach::pending;               // whether it reaches ours
    std::set<std::uint32_t> described;                // our slots that it was told of
    std::set<std::uint32_t> mapped;                   // of these, those it has mapped
    std::set<std::uint32_t> refused;
    std::vector<std::uint32_t> freed;  // our freed slots that it has not been told of
    std::map<std::uint32_t, Imported> theirs;
    std::set<std::uint32_t> unanswered;  // its slots whose mapping we have not confirmed
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
  std::shared_ptr<DescriptorSocket> socket_;  // opened at first use
  std::atomic<bool> said_{false};             // the reason for staging has been logged
  std::uint32_t last_slot_ = 0;
  std::vector<std::uint32_t> spare_slots_;
  std::uint32_t looked_at_ = 0;  // the next slot to check
  std::size_t looked_at_part_ = 0;
};

}  // namespace pith::cuda
