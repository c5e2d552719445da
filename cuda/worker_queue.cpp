#include "cuda/worker_queue.hpp"

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "cuda/stream_gate.hpp"

namespace pith::cuda {

namespace {

bool are_gone(const GraphsGone& graphs) {
  return graphs && graphs->load(std::memory_order_acquire);
}

}  // namespace

Expected<std::unique_ptr<WorkerQueue>> WorkerQueue::create(Device& device, Slot& tickets,
                                                           CUstream stream, FailureProbe& probe,
                                                           unsigned blocks) {
  std::unique_ptr<WorkerQueue> made(new WorkerQueue(device, tickets, stream, probe, blocks));
  if (Error error = made->open()) return error;
  return made;
}

Error WorkerQueue::open() {
  const Expected<CUfunction> kernel = device_.worker();
  if (!kernel) return kernel.error();
  kernel_ = *kernel;
  std::byte* const memory = device_.take_block(MemoryKind::host, ring_bytes);
  if (!memory) return {Code::cuda, "no pinned memory for the steps of a CUDA worker"};
  ring_ = new (memory) StepRing;
  last_ticket_ = tickets_.started();
  return add_boards();
}

WorkerQueue::~WorkerQueue() {
  std::vector<Device::Turn> workers;
  for (const Board& board : boards_) {
    workers.push_back(board.free);
    device_.give_slot(board.free);
  }
  std::vector<GraphsGone> graphs;
  for (const Line& line : lines_) {
    if (line.memory) graphs.push_back(line.gone);
  }
  std::vector<Device::Block> memory;
  memory.reserve(blocks_of_boards_.size() + 1);
  for (std::byte* const boards : blocks_of_boards_) {
    memory.push_back({MemoryKind::cuda, boards, boards_bytes});
  }
  if (ring_) {
    memory.push_back({MemoryKind::host, reinterpret_cast<std::byte*>(ring_), ring_bytes});
  }
  device_.give_later(std::move(memory), [workers = std::move(workers), graphs = std::move(graphs)] {
    return std::all_of(workers.begin(), workers.end(), Device::has_passed) &&
           std::all_of(graphs.begin(), graphs.end(), are_gone);
  });
}

Error WorkerQueue::add_boards() {
  std::byte* const memory = device_.take_block(MemoryKind::cuda, boards_bytes);
  if (!memory) return {Code::cuda, "no device memory for CUDA workers"};
  blocks_of_boards_.push_back(memory);
  const Current current(device_);
  const RelaxedCapture relaxed(device_.driver());
  const Driver& driver = device_.driver();
  CUresult result = driver.memset_async(address_of(memory), 0, boards_bytes, stream_);
  if (result == kSuccess) result = driver.stream_synchronize(stream_);
  if (result != kSuccess) return device_.error("clearing memory of CUDA workers", result);
  auto* const boards = reinterpret_cast<WorkerBoard*>(memory);
  for (std::size_t i = 0; i < boards_bytes / sizeof(WorkerBoard); ++i) {
    unused_.push_back(boards + i);
  }
  return {};
}

Expected<WorkerBoard*> WorkerQueue::take_memory() {
  if (unused_.empty()) {
    if (Error error = add_boards()) return error;
  }
  WorkerBoard* const board = unused_.back();
  unused_.pop_back();
  return board;
}

Expected<WorkerQueue::Board*> WorkerQueue::take_board() {
  const auto found = std::find_if(boards_.begin(), boards_.end(), [](const Board& board) {
    return Device::has_passed(board.free);
  });
  if (found != boards_.end()) {
    ++found->free.value;
    return &*found;
  }
  const Expected<Device::Turn> turn = device_.take_slot();
  if (!turn) return turn.error();
  const Expected<WorkerBoard*> memory = take_memory();
  if (!memory) {
    // Nothing will write the flag for this turn, so the slot keeps its previous value.
    device_.give_slot({turn->slot, turn->value - 1});
    return memory.error();
  }
  boards_.push_back({*memory, *turn});
  return &boards_.back();
}

// Calls captured on one stream run one after another, so they share a board.
Expected<WorkerBoard*> WorkerQueue::board_of(const StreamEntry& captured) {
  const auto index = static_cast<std::size_t>(captured.line);
  if (lines_.size() <= index) lines_.resize(index + 1);
  Line& line = lines_[index];
  if (!line.memory) {
    const Expected<WorkerBoard*> memory = take_memory();
    if (!memory) return memory.error();
    line.memory = *memory;
  }
  line.gone = captured.gone_graphs;
  return line.memory;
}

CUresult WorkerQueue::launch(CUstream stream, StreamEntry& entry) {
  WorkerArgs args{};
  args.id = ++last_id_;
  args.ring = ring_;
  args.tickets = &tickets_.start;
  args.start = &entry.slot->start;
  args.end = &entry.slot->end;
  args.value = entry.value;
  args.captured = entry.captured;
  Board* taken = nullptr;
  if (entry.captured) {
    const Expected<WorkerBoard*> board = board_of(entry);
    if (!board) return kErrorOutOfMemory;
    args.board = *board;
  } else {
    const Expected<Board*> board = take_board();
    if (!board) return kErrorOutOfMemory;
    taken = *board;
    args.board = taken->memory;
    args.board_free = &taken->free.slot->start;
    args.free_value = taken->free.value;
  }
  entry.worker = args.id;
  entry.stay = Stay::waits;
  // A worker that never serves needs one block. Captured calls get no grant: the number of
  // concurrent replays is unknown.
  unsigned blocks = entry.enters ? blocks_ : 1;
  if (taken && blocks > 1) blocks = device_.grant_blocks(taken->free, stream, blocks);
  void* params[] = {&args};
  const CUresult result =
      device_.driver().launch_kernel(kernel_, blocks, 1, 1, Worker::threads, 1, 1,
                                     worker_facts.shared_bytes, stream, params, nullptr);
  if (result != kSuccess && taken) {
    device_.return_blocks(taken->free);
    --taken->free.value;
  }
  return result;
}

void WorkerQueue::enter(StreamEntry& entry, std::uint64_t submitted) {
  assert(entry.stay != Stay::entered);
  entry.stay = Stay::entered;
  entered_.push_back(&entry);
  if (entered_.size() > 1) return;
  namings_.push_back({last_ticket_, entry.worker});
  const WaitArgs wait{&tickets_.start, submitted};
  if (tickets_.started() < submitted) push(step_wait, 1, &wait, sizeof wait);
  progress();
}

void WorkerQueue::progress() {
  while (!namings_.empty() && tickets_.started() >= namings_.front().after) {
    store_word(ring_->server, namings_.front().id);
    namings_.erase(namings_.begin());
  }
}

bool WorkerQueue::make_room() {
  constexpr unsigned rounds_a_look = 1024;
  for (unsigned round = 1; pushed_ - load_word(ring_->taken) >= ring_steps; ++round) {
    store_word(ring_->published, published_ = pushed_);
    progress();
    if (round % rounds_a_look == 0 && probe_.look() != kSuccess) return false;
    sched_yield();
  }
  return true;
}

bool WorkerQueue::push(std::uint32_t kernel, std::size_t blocks, const void* args,
                       std::size_t bytes) {
  assert(serves() && bytes <= sizeof(WorkerStep::args));
  if (!make_room()) return false;
  WorkerStep& step = ring_->steps[pushed_++ % ring_steps];
  step.kernel = kernel;
  step.blocks = static_cast<std::uint32_t>(blocks);
  step.ticket = 0;
  step.args_bytes = static_cast<std::uint32_t>(bytes);
  if (bytes > 0) std::memcpy(step.args, args, bytes);
  return true;
}

bool WorkerQueue::push_leave(StreamEntry& entry) {
  assert(entry.stay == Stay::entered);
  const auto next = std::find_if(entered_.begin(), entered_.end(),
                                 [&](const StreamEntry* other) { return other != &entry; });
  const std::uint64_t server = next == entered_.end() ? 0 : (*next)->worker;
  const LeaveArgs leave{server, &entry.slot->end, entry.value};
  const bool told = push(step_leave, 1, &leave, sizeof leave);
  std::erase(entered_, &entry);
  entry.stay = told ? Stay::left : Stay::waits;
  return told;
}

bool WorkerQueue::publish(std::uint64_t ticket) {
  if (pushed_ == published_ && !push(step_nothing, 1, nullptr, 0)) return false;
  ring_->steps[(pushed_ - 1) % ring_steps].ticket = ticket;
  last_ticket_ = ticket;
  store_word(ring_->published, published_ = pushed_);
  progress();
  return true;
}

}  // namespace pith::cuda
