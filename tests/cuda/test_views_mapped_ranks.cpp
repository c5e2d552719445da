// Allreduce over views of memory that belongs to no context: mapped by hand, as by an allocator of
// expandable segments, and of pools. Threads and processes on the stub driver.

#include <fstream>
#include <iterator>

#include "tests/cuda/views_sums.hpp"

using namespace pith::cuda;
using namespace pith::cuda::views;

namespace {

constexpr std::size_t page = std::size_t{2} << 20;

// Where a vector lies.
struct Place {
  std::uint32_t* data() const { return host_data; }
  std::uint32_t* host_data;
  std::size_t count;
};

// A reserved range whose pages are physical memory of their own each.
class Segment {
 public:
  explicit Segment(std::size_t most_pages, CUmemAllocationHandleType type = kHandleDescriptor)
      : type_(type), mapped_(most_pages) {
    good(cu().mem_reserve(&base_, most_pages * page, 0, 0, 0));
    good(cu().ctx_get_device(&device_));
  }
  ~Segment() {
    for (std::size_t i = 0; i < mapped_.size(); ++i) {
      if (mapped_[i]) unmap(i);
    }
    cu().mem_unreserve(base_, mapped_.size() * page);
  }
  Segment(const Segment&) = delete;

  void map(std::size_t index) {
    CUmemAllocationProp prop{};
    prop.type = kMemoryPinned;
    prop.requestedHandleTypes = type_;
    prop.location = {kLocationDevice, device_};
    CUmemGenericAllocationHandle handle = 0;
    good(cu().mem_create(&handle, page, &prop, 0));
    good(cu().mem_map(base_ + index * page, page, 0, handle, 0));
    good(cu().mem_release(handle));
    open(index, device_);
    mapped_[index] = true;
  }
  void open(std::size_t index, CUdevice device) {
    const CUmemAccessDesc access{{kLocationDevice, device}, kAccessReadWrite};
    good(cu().mem_set_access(base_ + index * page, page, &access, 1));
  }
  void unmap(std::size_t index) {
    good(cu().mem_unmap(base_ + index * page, page));
    mapped_[index] = false;
  }
  Place at(std::size_t offset, std::size_t count) const {
    return {reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(base_ + offset)), count};
  }

 private:
  CUmemAllocationHandleType type_;
  CUdevice device_ = 0;
  CUdeviceptr base_ = 0;
  std::vector<bool> mapped_;
};

// Of physical memory, here.
std::ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  const std::vector<std::string> lines{std::istream_iterator<std::string>(maps), {}};
  return std::count_if(lines.begin(), lines.end(), [](const std::string& word) {
    return word.find("pith-stub-physical") != std::string::npos;
  });
}

// Two vectors: of three pages each, neither of which begins or ends with one.
constexpr std::size_t long_count = page / 4 + 3000;
constexpr std::size_t first_offset = page - 4096;
constexpr std::size_t second_offset = 4 * page - 4096;

Setup long_setup(const Peers& peers) {
  Setup setup = setup_of(peers, "allreduce:two_shot");
  setup.environment.back().second = "262144";
  return setup;
}

const Peers& some_peers() { return every_peer[GENERATE(0, 1)]; }

}  // namespace

TEST_CASE("kernels read and write memory of other ranks that is mapped by hand") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::end(every_peer)));
  const int devices = GENERATE(1, 2);
  CHECK(ranks::run(3, long_setup(peers), [&](Rank& rank) {
          const Gpu gpu(rank.rank % devices);
          const ranks::Comm comm(rank.join());
          Segment segment(8);
          for (std::size_t i = 0; i < 8; ++i) {
            segment.map(i);
            segment.open(i, 1);
            segment.open(i, 0);
          }
          const Place send = segment.at(first_offset, long_count);
          const Place recv = segment.at(second_offset, long_count);
          ensure(warm_up(rank, gpu, comm, send, recv) > 0, "nobody had mapped it");
          ensure(call(rank, gpu, comm, send, recv, 1000) == 0, "copied by way of the host");
          warm_up(rank, gpu, comm, send, send, 2000);
          ensure(call(rank, gpu, comm, send, send, 3000) == 0, "in place copied");
          ensure((counters().descriptors_exported > 0) == (peers.way == Way::processes),
                 "descriptors");
          rank.meet();
        }) == "");
}

TEST_CASE("more parts than a message has descriptors for") {
  CHECK(ranks::run(2, long_setup(every_peer[0]), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          Segment segment(66);
          for (std::size_t i = 0; i < 66; ++i) segment.map(i);
          const Place whole = segment.at(0, 66 * page / 4);
          warm_up(rank, gpu, comm, whole, whole);
          ensure(counters().descriptors_exported >= 66, "not all were sent");
          rank.meet();
        }) == "");
}

TEST_CASE("a segment that grows is mapped further, and what was mapped stays so") {
  const Peers& peers = some_peers();
  CHECK(ranks::run(2, setup_of(peers, "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          Segment segment(4);
          segment.map(0);
          const Place first = segment.at(0, 5000);
          const Place result = segment.at(65536, 5000);
          unsigned round = warm_up(rank, gpu, comm, first, result) + 1;
          for (std::size_t i = 1; i < 4; ++i) {
            segment.map(i);
            const Place across = segment.at(i * page - 4096, 5000);
            round += warm_up(rank, gpu, comm, across, across, round) + 1;
            ensure(call(rank, gpu, comm, first, result, round++) == 0, "mapped no more");
          }
          rank.meet();
        }) == "");
}

// The sums of the very first call tell whose memory was read.
TEST_CASE("memory that is unmapped and mapped anew at its address is another one") {
  const Peers& peers = some_peers();
  CHECK(ranks::run(2, setup_of(peers, "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          Segment segment(2);
          segment.map(0);
          segment.map(1);
          const Place across = segment.at(page - 8192, 4000);
          const Place within = segment.at(4096, 1000);
          unsigned round = 0;
          for (int i = 0; i < 4; ++i) {
            round += warm_up(rank, gpu, comm, across, across, round) + 1;
            round += warm_up(rank, gpu, comm, within, within, round) + 1;
            segment.unmap(1);
            segment.map(1);
            call(rank, gpu, comm, across, across, round++);
            ensure(call(rank, gpu, comm, within, within, round++) == 0, "another page went");
          }
          rank.meet();
        }) == "");
}

// Else it would not go back to the device.
TEST_CASE("peers unmap what a segment gives back") {
  CHECK(ranks::run(2, long_setup(every_peer[0]), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          Segment segment(18);
          for (std::size_t i = 0; i < 18; ++i) segment.map(i);
          const Place whole = segment.at(0, 18 * page / 4);
          const Place within = segment.at(4096, 1000);
          unsigned round = warm_up(rank, gpu, comm, whole, whole) + 1;
          ensure(mappings() == 36, "one's own and the other's");
          for (std::size_t i = 17; i > 0; --i) segment.unmap(i);
          for (int left = 300; left > 0; --left) call(rank, gpu, comm, within, within, round++);
          ranks::wait_until([] { return mappings() == 2; });
          rank.meet();
        }) == "");
}

TEST_CASE("what is not created to be exported is reached by address only") {
  const Peers& peers = some_peers();
  CHECK(ranks::run(2, setup_of(peers, "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          Segment segment(2, kHandleNone);
          segment.map(0);
          segment.map(1);
          const Place across = segment.at(page - 8192, 4000);
          if (peers.way != Way::processes) warm_up(rank, gpu, comm, across, across);
          for (unsigned round = 500; round < 508; ++round) {
            const std::uint64_t copies = call(rank, gpu, comm, across, across, round);
            ensure((copies > 0) == (peers.way == Way::processes), "the other way");
          }
          rank.meet();
        }) == "");
}

TEST_CASE("a device that may not touch what is mapped gets it by way of the host") {
  CHECK(ranks::run(2, setup_of(every_peer[1], "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(rank.rank);
          const ranks::Comm comm(rank.join());
          Segment segment(2);
          segment.map(0);
          segment.map(1);
          const Place across = segment.at(page - 8192, 4000);
          for (unsigned round = 0; round < 8; ++round) {
            ensure(call(rank, gpu, comm, across, across, round) > 0, "nothing went by the host");
          }
          segment.open(0, 1 - rank.rank);
          ensure(call(rank, gpu, comm, across, across, 8) > 0, "one of two pages is enough");
          segment.open(1, 1 - rank.rank);
          warm_up(rank, gpu, comm, across, across, 9);
          rank.meet();
        }) == "");
}

TEST_CASE("memory of a pool is reached by address only, by the devices that the pool lets in") {
  const Peers& peers = some_peers();
  const int devices = GENERATE(1, 2);
  CHECK(ranks::run(2, setup_of(peers, "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(rank.rank % devices);
          const ranks::Comm comm(rank.join());
          CUdeviceptr address = 0;
          good(cu().mem_alloc_async(&address, 16000, gpu.stream));
          gpu.wait();
          const Place whole{reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address)),
                            4000};
          const bool kept_out = peers.way == Way::processes || devices == 2;
          for (unsigned round = 0; kept_out && round < 8; ++round) {
            ensure(call(rank, gpu, comm, whole, whole, round) > 0, "nothing went by the host");
          }
          if (peers.way != Way::processes) {
            CUmemoryPool pool = nullptr;
            good(cu().default_pool(&pool, rank.rank % devices));
            const CUmemAccessDesc access{{kLocationDevice, (rank.rank + 1) % devices},
                                         kAccessReadWrite};
            good(cu().pool_set_access(pool, &access, 1));
            warm_up(rank, gpu, comm, whole, whole, 10);
          }
          good(cu().mem_free_async(address, gpu.stream));
          gpu.wait();
          rank.meet();
        }) == "");
}

// The driver gives an address out again: what peers have mapped is another allocation.
TEST_CASE("device memory that is freed is mapped no more") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::begin(every_peer) + 2));
  CHECK(ranks::run(2, setup_of(peers, "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector recv(4000);
          CUdeviceptr last = 0;
          unsigned round = 0;
          for (int i = 0; i < 10; ++i) {
            const Vector send(4000);
            // Ranks of one process allocate in any order.
            ensure(peers.way != Way::processes || last == 0 || send.address == last,
                   "a new address");
            last = send.address;
            round += 1 + warm_up(rank, gpu, comm, send, recv, round);
          }
          for (int i = 0; i < 4; ++i) call(rank, gpu, comm, recv, recv, round++);
          if (peers.way != Way::processes) return;
          ranks::wait_until([] { return counters().ipc_closes >= 5; });
          ensure(counters().ipc_opens <= 13, "memory was mapped several times");
        }) == "");
}

// The driver maps a block of 2 MiB; here it does so once only.
TEST_CASE("memory whose block is mapped already is mapped when the other has been closed") {
  CHECK(ranks::run(2, setup_of(every_peer[0], "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          pithStubOpenBlocksOnce(true);
          auto first = std::make_unique<Vector>(3000);
          const Vector second(3000);
          unsigned round = warm_up(rank, gpu, comm, *first, *first) + 1;
          for (int i = 0; i < 20; ++i) {
            ensure(call(rank, gpu, comm, second, second, round++) > 0, "a block of its own");
          }
          first.reset();
          warm_up(rank, gpu, comm, second, second, round);
          rank.meet();
        }) == "");
}
