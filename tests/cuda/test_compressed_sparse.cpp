// Sparse results of compressed calls on device memory, beside those of the same calls on the host.
#include <numeric>
#include <optional>

#include "tests/cuda/compressed_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

enum class Lies { device, pinned };

// Memory for one rank's pairs, all bytes 0xCD at first, that the device reaches.
class Output {
 public:
  Output(Lies where, std::size_t bytes) : bytes_(bytes + 1) {
    if (where == Lies::pinned) {
      pinned_.emplace(bytes_ / 8 + 1);
      data_ = static_cast<std::byte*>(pinned_->memory);
    } else {
      device_.emplace(bytes_);
      data_ = device_->as<std::byte>();
    }
    std::memset(data_, 0xCD, bytes_);
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  bool holds(const Values& expected) const {
    return expected.size() == bytes_ && std::memcmp(data_, expected.data(), bytes_) == 0;
  }

 private:
  std::size_t bytes_;
  std::optional<DeviceMemory> device_;
  std::optional<Words> pinned_;
  std::byte* data_ = nullptr;
};

struct Room {
  Room(Lies where, std::size_t capacity, std::size_t unit)
      : indices(where, capacity * 8), values(where, capacity * unit), count(where, 8) {}
  Output indices;
  Output values;
  Output count;
};

// The host's memory for the same.
struct HostRoom {
  HostRoom(std::size_t capacity, std::size_t unit)
      : indices(capacity * 8 + 1, std::byte{0xCD}), values(capacity * unit + 1, std::byte{0xCD}) {}
  Values indices;
  Values values;
  std::size_t count = 77;
};

struct Case {
  std::size_t ranks;
  std::string spec;
  std::size_t count;
  pithDataType_t type = pithFloat32;
  Lies where = Lies::device;
  std::size_t capacity = ~std::size_t{0};
  bool count_on_device = false;
  float spoilt = 0;  // what the first element of rank 0 is in step 2
};

pithResult_t call_sparse(const Side& side, std::size_t r, const void* send, std::uint64_t* indices,
                         void* values, std::size_t capacity, std::size_t* n, pithRedOp_t op,
                         pithComm_t comm, pithStream_t stream) {
  return pithAllReduceCompressedSparse(send, indices, values, capacity, n, side.count(),
                                       side.type(), op, side.compressors[r], comm, stream);
}

std::string one_step(const Case& c, const Comms& on_device, const Comms& on_host, Twins& twins,
                     unsigned number) {
  const std::size_t unit = c.type == pithFloat32 ? 4 : 2;
  const std::size_t capacity = std::min(c.capacity, c.count);
  const pithRedOp_t op = number == 1 ? pithAvg : pithSum;
  std::vector<Values> sent = gradients(twins.device, number);
  if (c.spoilt != 0 && number == 2) std::memcpy(sent[0].data(), &c.spoilt, sizeof c.spoilt);
  std::vector<std::unique_ptr<Room>> rooms;
  std::vector<std::size_t> counts(c.ranks, 77);
  REQUIRE(pithGroupStart() == pithSuccess);
  for (std::size_t r = 0; r < c.ranks; ++r) {
    Room& room = *rooms.emplace_back(std::make_unique<Room>(c.where, capacity, unit));
    if (c.count > 0) {
      std::memcpy(twins.buffers.send[r]->as<void>(), sent[r].data(), twins.device.bytes());
    }
    const void* send = number == 3 ? nullptr : twins.buffers.send[r]->as<void>();
    std::size_t* n = c.count_on_device ? room.count.as<std::size_t>() : &counts[r];
    const pithResult_t result =
        call_sparse(twins.device, r, send, room.indices.as<std::uint64_t>(), room.values.as<void>(),
                    capacity, n, op, on_device.comms[r], *on_device.streams[r]);
    INFO(pithGetLastError(nullptr));
    REQUIRE(result == pithSuccess);
  }
  REQUIRE(pithGroupEnd() == pithSuccess);
  std::vector<HostRoom> expected(c.ranks, HostRoom(capacity, unit));
  REQUIRE(pithGroupStart() == pithSuccess);
  for (std::size_t r = 0; r < c.ranks; ++r) {
    HostRoom& room = expected[r];
    const void* send = number == 3 ? nullptr : sent[r].data();
    REQUIRE(call_sparse(twins.host, r, send, reinterpret_cast<std::uint64_t*>(room.indices.data()),
                        room.values.data(), capacity, &room.count, op, on_host.comms[r],
                        nullptr) == pithSuccess);
  }
  const bool fits = pithGroupEnd() == pithSuccess;
  CHECK((fits || c.capacity < c.count));
  on_device.synchronize();
  for (std::size_t r = 0; r < c.ranks; ++r) {
    pithResult_t state = pithSuccess;
    REQUIRE(pithCommGetAsyncError(on_device.comms[r], &state) == pithSuccess);
    REQUIRE(state == pithSuccess);
    const std::string who = "step " + std::to_string(number) + ", rank " + std::to_string(r);
    const std::size_t n = c.count_on_device ? *rooms[r]->count.as<std::size_t>() : counts[r];
    if (n != expected[r].count) {
      return who + ": " + std::to_string(n) + " pairs, expected " +
             std::to_string(expected[r].count);
    }
    if (!rooms[r]->indices.holds(expected[r].indices)) return who + ": other indices";
    if (!rooms[r]->values.holds(expected[r].values)) return who + ": other values";
    if (twins.device.residual(r) != twins.host.residual(r)) return who + ": other residual";
  }
  return {};
}

std::string run(const Case& c) {
  const Comms on_device(c.ranks);
  const Comms on_host(c.ranks);
  Twins twins(c.ranks, c.spec, c.count, c.type);
  for (unsigned number = 0; number < 5; ++number) {
    std::string found = one_step(c, on_device, on_host, twins, number);
    if (!found.empty()) return found;
  }
  // The next call has a dense result.
  return step(on_device, on_host, {&twins}, 5);
}

}  // namespace

TEST_CASE("sparse results on device memory are the host's pairs") {
  const test::Device device;
  const std::size_t ranks = GENERATE(2, 3);
  const char* spec = GENERATE(
      "topk:density=0.02,bypass=never", "topk:density=0.02,values=bf16,exchange=ring,bypass=never",
      "topk:density=0.02,exchange=split,bypass=never", "ar-topk:density=0.02,bypass=never",
      "exdyna:density=0.02,bypass=never", "deft:density=0.02,bypass=never", "none",
      "bf16:bypass=never", "topk:density=0.9");
  const std::size_t count = GENERATE(0, 1, 5003, 150000);
  INFO(spec << " of " << count << " on " << ranks << " ranks");
  CHECK(run({ranks, spec, count}) == "");
}

TEST_CASE("sparse results go to pinned memory, and how many there are to a device") {
  const test::Device device;
  CHECK(run({2, "topk:density=0.05,bypass=never", 9000, pithFloat16, Lies::pinned}) == "");
  Case c{2, "topk:density=0.05,bypass=never", 9000, pithBfloat16};
  c.count_on_device = true;
  CHECK(run(c) == "");
  c.count = 0;
  CHECK(run(c) == "");
}

TEST_CASE("where a device's output is too short the first pairs are there, and the call counts") {
  const test::Device device;
  Case c{3, "topk:density=0.05,bypass=never", 9000};
  c.capacity = GENERATE(0, 1, 100);
  CHECK(run(c) == "");
}

TEST_CASE("a number that is not finite is one pair of a device's sparse result") {
  const test::Device device;
  Case c{2, "topk:density=0.05,bypass=never", 9000};
  c.spoilt = INFINITY;
  CHECK(run(c) == "");
  c.spec = "none";
  CHECK(run(c) == "");
}

TEST_CASE("a host's call that only asks how many pairs there are waits for the answer") {
  const test::Device device;  // this thread has a context
  const Comms comms(1);
  const Side side(1, "topk:density=0.01,bypass=never", 1000, pithFloat32);
  std::vector<float> send(1000);
  std::iota(send.begin(), send.end(), 1.0F);
  for (const void* given :
       {static_cast<const void*>(send.data()), static_cast<const void*>(nullptr)}) {
    std::size_t n = 0;
    CHECK(call_sparse(side, 0, given, nullptr, nullptr, 0, &n, pithSum, comms.comms[0], nullptr) !=
          pithSuccess);
    CHECK(n == 10);
  }
}
