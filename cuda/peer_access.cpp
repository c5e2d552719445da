#include "cuda/peer_access.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "core/log.hpp"
#include "crypto/random_bytes.hpp"
#include "cuda/helper_thread.hpp"

namespace pith::cuda {

namespace {

// A word names memory: either a marked address (same process) or a slot and an offset.
constexpr std::uint64_t address_mark = std::uint64_t{1} << 60;
constexpr unsigned offset_bits = 40;
constexpr std::uint64_t offset_mask = (std::uint64_t{1} << offset_bits) - 1;
constexpr std::uint32_t most_slots = (1u << (60 - offset_bits)) - 1;
static_assert(2 * address_mark <= PeerMemory::words_end);

// Flags in Content::answers.
constexpr std::uint32_t refused_mark = 1u << 31;
constexpr std::uint32_t wanted_mark = 1u << 30;  // asks for the slot's descriptors
static_assert(most_slots < wanted_mark);

std::uint32_t slot_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> offset_bits);
}

// Unique across hosts and pid namespaces, where process ids repeat.
std::uint64_t process_token() {
  static const std::uint64_t token = [] {
    std::random_device source;
    const std::uint64_t high = source();
    return ((high << 32) | source()) ^ static_cast<std::uint64_t>(getpid());
  }();
  return token;
}

}  // namespace

struct PeerAccess::Content {
  std::uint64_t process;
  std::uint64_t context;
  std::uint8_t heard;    // the sender has had a note from the receiver
  std::uint8_t reaches;  // a Reach: whether the sender reaches the receiver's context
  std::uint8_t asks;     // asks whether the receiver reaches the sender's context
  std::uint8_t described;
  std::uint8_t answered;
  std::uint8_t freed;
  struct Description {
    std::uint64_t bytes;
    std::uint32_t slot;
    std::uint32_t parts;  // descriptors to send when asked for; 0: mapped by the IPC handle
    CUipcMemHandle handle;
  } memory[2];
  std::uint32_t answers[6];  // the receiver's slots, marked as refused or wanted, else mapped
  std::uint32_t freed_slots[6];
  DescriptorSocket::Address socket;  // the sender's
  std::int32_t device;               // the sender's
};

PeerAccess::PeerAccess(Device& device, std::vector<bool> near)
    : device_(device), peers_(near.size()), device_number_(device.ordinal()) {
  static_assert(sizeof(Content) <= sizeof(Note));
  for (std::size_t r = 0; r < near.size(); ++r) peers_[r].near = near[r];
}

PeerAccess::~PeerAccess() = default;

bool PeerAccess::same_process(const Peer& peer) const {
  return peer.heard && peer.process == process_token();
}

// This rank's device and those of peers in the same process.
DeviceSet PeerAccess::devices_here() {
  DeviceSet devices = set_of(device_number_);
  const std::lock_guard lock(mutex_);
  for (const Peer& peer : peers_) {
    if (peer.near && same_process(peer)) devices |= set_of(peer.device);
  }
  return devices;
}

// The allocation fits a word's offset, and this device's kernels can access it.
bool PeerAccess::is_of_use(const Allocation& allocation) const {
  const bool touched = allocation.kind == Allocation::Kind::of_context ||
                       (allocation.open_for & set_of(device_number_)).any();
  return touched && allocation.end() - allocation.base() <= offset_mask;
}

// The lock is not held during driver calls: the driver may wait for a call that needs the lock.
std::uint32_t PeerAccess::look_at(Bytes memory) {
  if (memory.kind != MemoryKind::cuda || !memory.data || memory.size == 0) return 0;
  std::optional<Allocation> found = allocation_of(device_, memory, devices_here());
  {
    const std::lock_guard lock(mutex_);
    if (!found || !is_of_use(*found)) {
      const CUdeviceptr address = address_of(memory.data);
      for (const auto slot : slots_within(address, address + memory.size)) {
        if (allocations_.at(slot).looks == 0) forget(slot);  // else a running call uses it
      }
      return 0;
    }
    std::uint32_t slot = 0;
    if (Known* const known = find(*found, slot)) {
      known->open_for = found->open_for;
      ++known->looks;
      return slot;
    }
  }
  Known known{std::move(*found)};
  if (has_other_processes()) make_handle(known);
  const std::lock_guard lock(mutex_);
  const std::uint32_t slot = add(std::move(known));
  if (slot != 0) ++allocations_.at(slot).looks;
  return slot;
}

void PeerAccess::let_go(std::uint32_t slot) {
  const std::lock_guard lock(mutex_);
  const auto known = allocations_.find(slot);
  if (known != allocations_.end()) --known->second.looks;
}

std::uint64_t PeerAccess::identify(Bytes memory) {
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

std::uint64_t PeerAccess::word_of(CUdeviceptr address, std::size_t bytes) const {
  auto next = by_range_.upper_bound({address, ~CUdeviceptr{0}});
  if (next == by_range_.begin()) return 0;
  const CUdeviceptr base = std::prev(next)->first.first;
  while (next != by_range_.begin() && (--next)->first.first == base) {
    const std::uint32_t slot = next->second;
    if (!allocations_.at(slot).spans(address, bytes)) continue;
    return std::uint64_t{slot} << offset_bits | (address - base);
  }
  return 0;
}

PeerAccess::Known* PeerAccess::find(const Allocation& like, std::uint32_t& slot) {
  const auto known = by_range_.find({like.base(), like.end()});
  if (known == by_range_.end()) return nullptr;
  Known& there = allocations_.at(slot = known->second);
  return there.same_as(like) ? &there : nullptr;
}

// Returns the slot; 0: all are in use. Another thread may have added the allocation meanwhile.
std::uint32_t PeerAccess::add(Known allocation) {
  std::uint32_t slot = 0;
  if (find(allocation, slot)) return slot;
  for (const std::uint32_t old : slots_within(allocation.base(), allocation.end())) {
    if (allocations_.at(old).contradicts(allocation)) forget(old);
  }
  if (last_slot_ < most_slots) {
    slot = ++last_slot_;
  } else if (!spare_slots_.empty()) {
    slot = spare_slots_.back();
    spare_slots_.pop_back();
  } else {
    return 0;
  }
  by_range_[{allocation.base(), allocation.end()}] = slot;
  allocations_.emplace(slot, std::move(allocation));
  return slot;
}

// Slots of known allocations that overlap the range.
std::vector<std::uint32_t> PeerAccess::slots_within(CUdeviceptr address, CUdeviceptr end) const {
  std::vector<std::uint32_t> slots;
  for (const auto& [slot, known] : allocations_) {
    if (known.base() < end && known.end() > address) slots.push_back(slot);
  }
  return slots;
}

// A slot that a peer knows or a running call holds is never reused for other memory.
void PeerAccess::forget(std::uint32_t slot) {
  bool is_spare = allocations_.at(slot).looks == 0;
  for (Peer& peer : peers_) {
    if (peer.described.erase(slot) > 0) {
      peer.freed.push_back(slot);
      is_spare = false;
    }
    peer.mapped.erase(slot);
    peer.refused.erase(slot);
  }
  const Allocation& allocation = allocations_.at(slot);
  by_range_.erase({allocation.base(), allocation.end()});
  allocations_.erase(slot);
  if (is_spare) spare_slots_.push_back(slot);
}

void PeerAccess::look_for_freed() {
  std::uint32_t slot = 0;
  Allocation::Kind kind = Allocation::Kind::of_context;
  std::array<MappedPart, 16> parts;
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    auto next = allocations_.lower_bound(looked_at_);
    if (next == allocations_.end()) next = allocations_.begin();
    if (next == allocations_.end()) return;
    const auto& [number, known] = *next;
    const std::size_t first = number == looked_at_ ? looked_at_part_ : 0;
    count = std::min(parts.size(), known.parts.size() - first);
    std::copy_n(known.parts.begin() + static_cast<std::ptrdiff_t>(first), count, parts.begin());
    slot = looked_at_ = number;
    kind = known.kind;
    looked_at_part_ = first + count;
    if (looked_at_part_ == known.parts.size()) {
      ++looked_at_;
      looked_at_part_ = 0;
    }
  }
  if (!is_gone(device_.driver(), kind, std::span(parts).first(count))) return;
  const std::lock_guard lock(mutex_);
  if (allocations_.contains(slot)) forget(slot);
}

std::uint64_t PeerAccess::expose(int rank, std::uint64_t mine) {
  const std::lock_guard lock(mutex_);
  const Peer& peer = at(rank);
  const auto found = allocations_.find(slot_in(mine));
  if (mine == 0 || found == allocations_.end()) return 0;
  if (!same_process(peer)) return peer.mapped.contains(slot_in(mine)) ? mine : 0;
  const Allocation& allocation = found->second;
  const CUdeviceptr address = allocation.base() + (mine & offset_mask);
  const bool reached = allocation.kind == Allocation::Kind::of_context
                           ? peer.our_context == Reach::open
                           : (allocation.open_for & set_of(peer.device)).any();
  return reached && address < address_mark ? address_mark | address : 0;
}

std::byte* PeerAccess::map(int rank, std::uint64_t word) {
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

// Constant once all peers are known.
bool PeerAccess::has_other_processes() {
  const std::lock_guard lock(mutex_);
  return std::any_of(peers_.begin(), peers_.end(),
                     [this](const Peer& peer) { return peer.near && !same_process(peer); });
}

void PeerAccess::say_that_it_is_staged(const char* why) {
  if (said_.exchange(true)) return;
  log(LogLevel::info,
      std::string("device memory that other processes cannot map is copied by way "
                  "of the host: it ") +
          why,
      LogTopic::p2p);
}

void PeerAccess::make_handle(Known& allocation) {
  const Driver& driver = device_.driver();
  const Current current(device_);
  const RelaxedCapture relaxed(driver);
  if (allocation.kind == Allocation::Kind::of_pool) {
    allocation.handled = Reach::refused;
    return say_that_it_is_staged("is a memory pool's");
  }
  if (allocation.kind == Allocation::Kind::mapped) {
    const bool shared =
        std::all_of(allocation.parts.begin(), allocation.parts.end(),
                    [&](const MappedPart& part) { return has_descriptor(driver, part.base); });
    allocation.handled = shared ? Reach::open : Reach::refused;
    if (!shared) say_that_it_is_staged("was created without a handle type to export it by");
    return;
  }
  const bool given = driver.ipc_get_handle && driver.ipc_open_handle && driver.ipc_close_handle &&
                     driver.ipc_get_handle(&allocation.handle, allocation.base()) == kSuccess;
  allocation.handled = given ? Reach::open : Reach::refused;
}

// Describes this call's memory as far as the peer has not mapped it.
bool PeerAccess::describe(Peer& peer, std::span<const std::uint64_t> mine, Content& content) {
  for (const std::uint64_t word : mine) {
    const std::uint32_t slot = slot_in(word);
    const bool again = content.described == 1 && content.memory[0].slot == slot;
    if (slot == 0 || again || peer.mapped.contains(slot) || peer.refused.contains(slot)) continue;
    const auto found = allocations_.find(slot);
    if (found == allocations_.end() || found->second.handled != Reach::open) continue;
    const Known& allocation = found->second;
    const std::size_t parts =
        allocation.kind == Allocation::Kind::mapped ? allocation.parts.size() : 0;
    if (parts > 0 && peer.unreachable && peer.unreachable->load()) continue;
    peer.described.insert(slot);
    content.memory[content.described++] = {allocation.end() - allocation.base(), slot,
                                           static_cast<std::uint32_t>(parts), allocation.handle};
  }
  return content.described > 0;
}

bool PeerAccess::answer(Peer& peer, Content& content) {
  for (auto slot = peer.unanswered.begin(); slot != peer.unanswered.end();) {
    const auto found = peer.theirs.find(*slot);
    const Reach reach = found == peer.theirs.end() ? Reach::refused : found->second.reach();
    const bool full = content.answered == std::size(content.answers);
    const bool wanted = !full && reach == Reach::pending && found->second.asks_for_descriptors();
    if (full || (reach == Reach::pending && !wanted)) {
      ++slot;
      continue;
    }
    const std::uint32_t mark = reach == Reach::open ? 0 : wanted ? wanted_mark : refused_mark;
    content.answers[content.answered++] = *slot | mark;
    slot = peer.unanswered.erase(slot);
  }
  return content.answered > 0;
}

bool PeerAccess::tell_freed(Peer& peer, Content& content) {
  while (!peer.freed.empty() && content.freed < std::size(content.freed_slots)) {
    content.freed_slots[content.freed++] = peer.freed.back();
    peer.freed.pop_back();
  }
  return content.freed > 0;
}

bool PeerAccess::write_note(int rank, std::span<const std::uint64_t> mine, Note& note) {
  const std::lock_guard lock(mutex_);
  Peer& peer = at(rank);
  if (!peer.near) return false;
  Content content{};
  content.process = process_token();
  content.context = reinterpret_cast<std::uintptr_t>(device_.context());
  content.device = device_number_;
  if (socket_) content.socket = {socket_->name(), peer.secret};
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

void PeerAccess::read_note(int rank, const Note& note) {
  Content content;
  std::memcpy(&content, note.data(), sizeof content);
  const std::lock_guard lock(mutex_);
  Peer& peer = at(rank);
  if (!peer.near) return;
  if (!peer.heard) {
    peer.heard = true;
    peer.process = content.process;
    peer.context = content.context;
    peer.device = content.device;
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

// Freed slots first: their old mappings may block new ones.
void PeerAccess::hear_of(Peer& peer, const Content& content) {
  if (content.socket.name != 0) peer.socket = content.socket;
  for (std::size_t i = 0; i < content.freed && i < std::size(content.freed_slots); ++i) {
    peer.theirs.erase(content.freed_slots[i]);
    peer.unanswered.erase(content.freed_slots[i]);
  }
  hear_of_memory(peer, content);
  for (std::size_t i = 0; i < content.answered && i < std::size(content.answers); ++i) {
    const std::uint32_t slot = content.answers[i] & ~(refused_mark | wanted_mark);
    if (!allocations_.contains(slot)) continue;
    if ((content.answers[i] & wanted_mark) != 0) {
      give_descriptors(peer, slot);
    } else {
      (content.answers[i] == slot ? peer.mapped : peer.refused).insert(slot);
    }
  }
}

// Memory without an entry in `theirs` is answered as refused.
void PeerAccess::hear_of_memory(Peer& peer, const Content& content) {
  const Driver& driver = device_.driver();
  for (std::size_t i = 0; i < content.described && i < std::size(content.memory); ++i) {
    const auto& [bytes, slot, parts, handle] = content.memory[i];
    peer.unanswered.insert(slot);
    const auto known = peer.theirs.find(slot);
    if (known != peer.theirs.end()) {
      known->second.try_again();
    } else if (parts == 0 && driver.ipc_open_handle && driver.ipc_close_handle) {
      peer.theirs.try_emplace(slot, device_, handle, static_cast<std::size_t>(bytes));
    } else if (parts > 0 && parts <= Allocation::most_parts && maps_memory(driver) &&
               open_socket(peer)) {
      peer.theirs.try_emplace(slot, device_, socket_, DescriptorSocket::Key{peer.secret, slot},
                              parts, static_cast<std::size_t>(bytes));
    }
  }
}

bool PeerAccess::open_socket(Peer& peer) {
  if (peer.secret == 0 && fill_random(std::as_writable_bytes(std::span(&peer.secret, 1)))) {
    peer.secret = 0;
  }
  if (!socket_) {
    if (auto opened = DescriptorSocket::open()) socket_ = std::move(*opened);
  }
  return socket_ && peer.secret != 0;
}

void PeerAccess::give_descriptors(Peer& peer, std::uint32_t slot) {
  const Allocation& allocation = allocations_.at(slot);
  if (peer.socket.name == 0 || allocation.kind != Allocation::Kind::mapped) return;
  if (!peer.unreachable) peer.unreachable = std::make_shared<std::atomic<bool>>(false);
  run_on_helper_thread([&device = device_, to = peer.socket, slot, parts = allocation.parts,
                        unreachable = peer.unreachable] {
    const Current current(device);
    const RelaxedCapture relaxed(device.driver());
    const DescriptorSocket::Sent sent = send_descriptors(device.driver(), to, slot, parts);
    if (sent == DescriptorSocket::Sent::nobody_there) *unreachable = true;
  });
}

}  // namespace pith::cuda
