#include "cuda/peer_views.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace pith::cuda {

namespace {

// A word: an address in our process, marked, or a slot and an offset there.
constexpr std::uint64_t address_mark = std::uint64_t{1} << 60;
constexpr unsigned offset_bits = 40;
constexpr std::uint64_t offset_mask = (std::uint64_t{1} << offset_bits) - 1;
constexpr std::uint32_t most_slots = (1u << (60 - offset_bits)) - 1;
static_assert(2 * address_mark <= PeerMemory::words_end);

constexpr std::uint32_t refused_mark = 1u << 31;  // in Content::answers

std::uint32_t slot_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> offset_bits);
}

// Tells this process from every other one, also from one of its number elsewhere.
std::uint64_t process_token() {
  static const std::uint64_t token = [] {
    std::random_device source;
    const std::uint64_t high = source();
    return ((high << 32) | source()) ^ static_cast<std::uint64_t>(getpid());
  }();
  return token;
}

}  // namespace

struct PeerViews::Content {
  std::uint64_t process;
  std::uint64_t context;
  std::uint8_t heard;    // the sender knows the receiver's process
  std::uint8_t reaches;  // a Reach: whether the sender reaches the receiver's context
  std::uint8_t asks;     // whether the receiver reaches the sender's
  std::uint8_t described;
  std::uint8_t answered;
  std::uint8_t freed;
  struct Description {
    std::uint64_t bytes;
    std::uint32_t slot;
    CUipcMemHandle handle;
  } memory[2];
  std::uint32_t answers[6];  // slots of the receiver's, mapped or refused
  std::uint32_t freed_slots[6];
};

PeerViews::PeerViews(Device& device, std::vector<bool> near)
    : device_(device), peers_(near.size()) {
  static_assert(sizeof(Content) <= sizeof(Note));
  for (std::size_t r = 0; r < near.size(); ++r) peers_[r].near = near[r];
}

PeerViews::~PeerViews() = default;

bool PeerViews::same_process(const Peer& peer) const {
  return peer.heard && peer.process == process_token();
}

// Memory of another kind, or of another context, has no slot.
std::optional<PeerViews::Allocation> PeerViews::ask(Bytes memory) const {
  unsigned type = 0;
  CUcontext context = nullptr;
  Allocation found;
  CUpointer_attribute names[] = {kPointerMemoryType, kPointerContext, kPointerBufferId,
                                 kPointerRangeStart, kPointerRangeSize};
  void* values[] = {&type, &context, &found.id, &found.base, &found.bytes};
  const CUdeviceptr address = address_of(memory.data);
  // Who drives the engine may have no context, and then the driver need not answer.
  const Current current(device_);
  if (device_.driver().pointer_attributes(5, names, values, address) != kSuccess) return {};
  if (type != kMemoryTypeDevice || context != device_.context() || found.id == 0) return {};
  const std::uint64_t offset = address - found.base;
  if (address < found.base || offset > found.bytes || memory.size > found.bytes - offset ||
      found.bytes > offset_mask) {
    return {};
  }
  return found;
}

// No lock is held while the driver answers: it may wait for a call that wants the lock.
std::uint32_t PeerViews::look_at(Bytes memory) {
  if (memory.kind != MemoryKind::cuda || !memory.data || memory.size == 0) return 0;
  std::optional<Allocation> found = ask(memory);
  std::uint32_t slot = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!found) {
      forget_within(address_of(memory.data), memory.size);
      return 0;
    }
    slot = slot_of(*found);
    if (slot == 0) return 0;
    Allocation& known = allocations_[slot];
    ++known.looks;
    const bool mapped = std::any_of(peers_.begin(), peers_.end(), [this](const Peer& peer) {
      return peer.near && !same_process(peer);
    });
    if (!mapped || known.handled != Reach::pending) return slot;
  }
  make_handle(*found);
  const std::lock_guard lock(mutex_);
  const auto known = allocations_.find(slot);
  if (known == allocations_.end()) return slot;
  known->second.handle = found->handle;
  known->second.handled = found->handled;
  return slot;
}

void PeerViews::let_go(std::uint32_t slot) {
  const std::lock_guard lock(mutex_);
  const auto known = allocations_.find(slot);
  if (known != allocations_.end()) --known->second.looks;
}

std::uint64_t PeerViews::identify(Bytes memory) {
  if (memory.kind != MemoryKind::cuda || !memory.data || memory.size == 0) return 0;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t word = word_of(address_of(memory.data), memory.size);
    if (word != 0 && allocations_.at(slot_in(word)).looks > 0) return word;
  }
  let_go(look_at(memory));
  const std::lock_guard lock(mutex_);
  return word_of(address_of(memory.data), memory.size);
}

std::uint64_t PeerViews::word_of(CUdeviceptr address, std::size_t bytes) const {
  auto next = by_base_.upper_bound(address);
  if (next == by_base_.begin()) return 0;
  const auto& [base, slot] = *--next;
  const std::uint64_t offset = address - base;
  const std::size_t whole = allocations_.at(slot).bytes;
  if (offset > whole || bytes > whole - offset) return 0;
  return std::uint64_t{slot} << offset_bits | offset;
}

// 0: there are no more.
std::uint32_t PeerViews::slot_of(const Allocation& allocation) {
  const auto known = by_base_.find(allocation.base);
  if (known != by_base_.end() && allocations_[known->second].id == allocation.id) {
    return known->second;
  }
  forget_within(allocation.base, allocation.bytes);
  if (last_slot_ == most_slots) return 0;
  const std::uint32_t slot = ++last_slot_;
  allocations_[slot] = allocation;
  by_base_[allocation.base] = slot;
  return slot;
}

// What has been there before.
void PeerViews::forget_within(CUdeviceptr address, std::size_t bytes) {
  auto next = by_base_.upper_bound(address);
  if (next != by_base_.begin()) {
    const auto& [base, slot] = *std::prev(next);
    if (base + allocations_[slot].bytes > address) --next;
  }
  while (next != by_base_.end() && next->first < address + bytes) forget((next++)->second);
}

void PeerViews::forget(std::uint32_t slot) {
  for (Peer& peer : peers_) {
    if (peer.described.erase(slot) > 0) peer.freed.push_back(slot);
    peer.mapped.erase(slot);
    peer.refused.erase(slot);
  }
  by_base_.erase(allocations_[slot].base);
  allocations_.erase(slot);
}

void PeerViews::look_for_freed() {
  std::uint32_t slot = 0;
  CUdeviceptr base = 0;
  std::uint64_t known = 0;
  {
    const std::lock_guard lock(mutex_);
    if (allocations_.empty()) return;
    auto next = allocations_.upper_bound(looked_at_);
    if (next == allocations_.end()) next = allocations_.begin();
    slot = looked_at_ = next->first;
    base = next->second.base;
    known = next->second.id;
  }
  std::uint64_t id = 0;
  const CUresult result = device_.driver().pointer_attribute(&id, kPointerBufferId, base);
  if (result == kSuccess && id == known) return;
  const std::lock_guard lock(mutex_);
  if (allocations_.contains(slot)) forget(slot);
}

std::uint64_t PeerViews::expose(int rank, std::uint64_t mine) {
  const std::lock_guard lock(mutex_);
  const Peer& peer = at(rank);
  const auto allocation = allocations_.find(slot_in(mine));
  if (mine == 0 || allocation == allocations_.end()) return 0;
  if (!same_process(peer)) return peer.mapped.contains(slot_in(mine)) ? mine : 0;
  const CUdeviceptr address = allocation->second.base + (mine & offset_mask);
  return peer.our_context == Reach::open && address < address_mark ? address_mark | address : 0;
}

std::byte* PeerViews::map(int rank, std::uint64_t word) {
  const std::lock_guard lock(mutex_);
  Peer& peer = at(rank);
  if (same_process(peer)) {
    const std::uint64_t address = word & ~address_mark;
    return word == address ? nullptr
                           : reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  }
  const std::uint32_t slot = slot_in(word);
  const auto found = peer.theirs.find(slot);
  return found == peer.theirs.end() ? nullptr : found->second.at(word & offset_mask);
}

void PeerViews::make_handle(Allocation& allocation) const {
  const Driver& driver = device_.driver();
  const Current current(device_);
  const RelaxedCapture relaxed(driver);
  const bool given = driver.ipc_get_handle && driver.ipc_open_handle && driver.ipc_close_handle &&
                     driver.ipc_get_handle(&allocation.handle, allocation.base) == kSuccess;
  allocation.handled = given ? Reach::open : Reach::refused;
}

// What of this call's memory the peer has not mapped yet.
bool PeerViews::describe(Peer& peer, std::span<const std::uint64_t> mine, Content& content) {
  for (const std::uint64_t word : mine) {
    const std::uint32_t slot = slot_in(word);
    const bool again = content.described == 1 && content.memory[0].slot == slot;
    if (slot == 0 || again || peer.mapped.contains(slot) || peer.refused.contains(slot)) continue;
    const auto found = allocations_.find(slot);
    if (found == allocations_.end() || found->second.handled != Reach::open) continue;
    peer.described.insert(slot);
    content.memory[content.described++] = {found->second.bytes, slot, found->second.handle};
  }
  return content.described > 0;
}

bool PeerViews::answer(Peer& peer, Content& content) {
  for (auto slot = peer.unanswered.begin(); slot != peer.unanswered.end();) {
    const auto found = peer.theirs.find(*slot);
    const Reach reach = found == peer.theirs.end() ? Reach::refused : found->second.reach();
    if (reach == Reach::pending || content.answered == std::size(content.answers)) {
      ++slot;
      continue;
    }
    content.answers[content.answered++] = *slot | (reach == Reach::open ? 0 : refused_mark);
    slot = peer.unanswered.erase(slot);
  }
  return content.answered > 0;
}

bool PeerViews::tell_freed(Peer& peer, Content& content) {
  while (!peer.freed.empty() && content.freed < std::size(content.freed_slots)) {
    content.freed_slots[content.freed++] = peer.freed.back();
    peer.freed.pop_back();
  }
  return content.freed > 0;
}

bool PeerViews::write_note(int rank, std::span<const std::uint64_t> mine, Note& note) {
  const std::lock_guard lock(mutex_);
  Peer& peer = at(rank);
  if (!peer.near) return false;
  Content content{};
  content.process = process_token();
  content.context = reinterpret_cast<std::uintptr_t>(device_.context());
  content.heard = peer.heard;
  bool wanted = !peer.heard || peer.reply;
  if (same_process(peer)) {
    content.reaches = static_cast<std::uint8_t>(peer.its_context->load());
    content.asks = peer.our_context == Reach::pending;
    wanted |= content.asks != 0;
  } else {
    wanted |= describe(peer, mine, content);
    wanted |= answer(peer, content);
    wanted |= tell_freed(peer, content);
  }
  if (!wanted) return false;
  peer.reply = false;
  note = {};
  std::memcpy(note.data(), &content, sizeof content);
  return true;
}

void PeerViews::read_note(int rank, const Note& note) {
  Content content;
  std::memcpy(&content, note.data(), sizeof content);
  const std::lock_guard lock(mutex_);
  Peer& peer = at(rank);
  if (!peer.near) return;
  if (!peer.heard) {
    peer.heard = true;
    peer.process = content.process;
    peer.context = content.context;
    if (same_process(peer)) {
      const auto other = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(content.context));
      peer.its_context = reach_context(device_, other);
    }
  }
  peer.reply |= content.heard == 0 || content.asks != 0;
  if (!same_process(peer)) return hear_of(peer, content);
  const auto reaches = static_cast<Reach>(content.reaches);
  if (content.heard != 0 && reaches != Reach::pending) peer.our_context = reaches;
}

void PeerViews::hear_of(Peer& peer, const Content& content) {
  for (std::size_t i = 0; i < content.described && i < std::size(content.memory); ++i) {
    const auto& [bytes, slot, handle] = content.memory[i];
    if (!device_.driver().ipc_open_handle || !device_.driver().ipc_close_handle) break;
    if (!peer.theirs.contains(slot)) {
      peer.theirs.try_emplace(slot, device_, handle, static_cast<std::size_t>(bytes));
    }
    peer.unanswered.insert(slot);
  }
  for (std::size_t i = 0; i < content.answered && i < std::size(content.answers); ++i) {
    const std::uint32_t slot = content.answers[i] & ~refused_mark;
    if (!allocations_.contains(slot)) continue;
    (content.answers[i] == slot ? peer.mapped : peer.refused).insert(slot);
  }
  for (std::size_t i = 0; i < content.freed && i < std::size(content.freed_slots); ++i) {
    peer.theirs.erase(content.freed_slots[i]);
    peer.unanswered.erase(content.freed_slots[i]);
  }
}

}  // namespace pith::cuda
