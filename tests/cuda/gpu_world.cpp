#include "tests/cuda/gpu_world.hpp"

#include <cstdlib>

namespace pith::cuda::gpu {

bool on_gpu() { return std::getenv("PITH_TEST_GPU") != nullptr; }
bool thorough() { return on_gpu() || std::getenv("PITH_TEST_FULL"); }

Gpu::Gpu() : context(rank_driver::make_current(0)) {
  for (CUstream* made : {&stream, &other, &copies}) {
    good(cu().stream_create(made, kStreamNonBlocking, 0));
  }
}

CUevent new_event() {
  CUevent event = nullptr;
  good(cu().event_create(&event, kEventDisableTiming));
  return event;
}

namespace {

void* pinned(std::size_t bytes) {
  void* memory = nullptr;
  good(cu().host_alloc(&memory, bytes, kHostAllocPortable | kHostAllocDeviceMap));
  std::memset(memory, 0, bytes);
  return memory;
}

}  // namespace

Memory::Memory(const Gpu& gpu, std::size_t bytes) : gpu_(gpu), bytes_(bytes) {
  CUdeviceptr address = 0;
  good(cu().mem_alloc(&address, bytes));
  address_ = static_cast<std::uintptr_t>(address);
  image_ = static_cast<char*>(pinned(bytes));
}

void Memory::put() const {
  good(cu().memcpy_htod_async(address_, image_, bytes_, gpu_.copies));
  good(cu().stream_synchronize(gpu_.copies));
}
void Memory::get() const {
  good(cu().memcpy_dtoh_async(image_, address_, bytes_, gpu_.copies));
  good(cu().stream_synchronize(gpu_.copies));
}
void Memory::fill(unsigned char value) const {
  good(cu().memset_async(address_, value, bytes_, gpu_.copies));
  good(cu().stream_synchronize(gpu_.copies));
}

Word::Word() : word_(static_cast<std::uint64_t*>(pinned(8))) {}

std::uint32_t value_of(int rank, std::size_t i, unsigned round) {
  return static_cast<std::uint32_t>((i + 1) * 2654435761u + static_cast<unsigned>(rank) * 40503u +
                                    round * 69069u);
}

void fill(const Memory& memory, int rank, unsigned round) {
  for (std::size_t i = 0; i < memory.bytes() / 4; ++i) {
    memory.words()[i] = value_of(rank, i, round);
  }
  memory.put();
}

std::uint32_t sum_of(int ranks, std::size_t i, unsigned round) {
  std::uint32_t sum = 0;
  for (int r = 0; r < ranks; ++r) sum += value_of(r, i, round);
  return sum;
}

void ensure_sum(const Memory& memory, int ranks, unsigned round, std::uint32_t times,
                ranks::Where where) {
  memory.get();
  for (std::size_t i = 0; i < memory.bytes() / 4; ++i) {
    const std::uint32_t expected = times * sum_of(ranks, i, round);
    if (memory.words()[i] == expected) continue;
    ensure(false,
           "round " + std::to_string(round) + ": element " + std::to_string(i) + " is " +
               std::to_string(memory.words()[i]) + ", expected " + std::to_string(expected),
           where);
  }
}

pithResult_t all_reduce(const Memory& send, const Memory& recv, pithComm_t comm, CUstream stream) {
  return pithAllReduce(send.at(), recv.at(), send.bytes() / 4, pithUint32, pithSum, comm, stream);
}

void warm_up(Rank& rank, const Gpu& gpu, pithComm_t comm, const Memory& send, const Memory& recv) {
  rank.meet();
  for (unsigned round = 900; round < 902; ++round) {
    fill(send, rank.rank, round);
    ok(all_reduce(send, recv, comm, gpu.stream));
    gpu.wait();
    ensure_sum(recv, rank.size, round);
  }
  rank.meet();
}

std::vector<Peers> every_peer() {
  std::vector<Peers> peers = {{"processes", Way::processes, "shm"}};
  if (!thorough()) return peers;
  peers.push_back({"threads", Way::threads, "shm"});
  if (!on_gpu()) peers.push_back({"InitAll", Way::all, "local"});
  return peers;
}

Setup setup_of(const Peers& peers) {
  Setup setup;
  setup.way = peers.way;
  setup.transport = peers.transport;
  // What hangs on a GPU must not eat the time of what does not; the stub may be short of cores.
  setup.limit_s = on_gpu() ? 15 : 100;
  return setup;
}

void check(int ranks, const Setup& setup, const std::string& name, const ranks::Body& body) {
  INFO(name << ", " << ranks << " ranks");
  CHECK(ranks::run(ranks, setup, body) == "");
}

}  // namespace pith::cuda::gpu
