// What calls on device memory give, over any driver: every collective, types, sizes, and memory
// that comes and goes.
#include <memory>

#include "tests/cuda/gpu_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::gpu;

namespace {

constexpr std::size_t count = 3001;

// `size` blocks each way; block b of rank r is value_of(r, i, b).
struct Blocks {
  explicit Blocks(Rank& r)
      : rank(r),
        size(static_cast<std::size_t>(r.size)),
        send(gpu, size * count * 4),
        recv(gpu, size * count * 4) {
    for (std::size_t b = 0; b < size; ++b) {
      for (std::size_t i = 0; i < count; ++i) {
        send.words()[b * count + i] = value_of(rank.rank, i, static_cast<unsigned>(b));
      }
    }
    send.put();
    recv.fill(0);
    comm = rank.join();
    rank.meet();
  }
  ~Blocks() { pithCommDestroy(comm); }
  Blocks(const Blocks&) = delete;

  // recv's blocks after a call, each expected(block, i).
  template <class Expected>
  void ensure_blocks(const char* name, std::size_t blocks, Expected expected) {
    gpu.wait();
    recv.get();
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t i = 0; i < count; ++i) {
        ensure(recv.words()[b * count + i] == expected(b, i), name);
      }
    }
    recv.fill(0);
    rank.meet();
  }

  Rank& rank;
  std::size_t size;
  Gpu gpu;
  Memory send, recv;
  pithComm_t comm = nullptr;
};

std::uint32_t value(std::size_t rank, std::size_t i, std::size_t block) {
  return value_of(static_cast<int>(rank), i, static_cast<unsigned>(block));
}

void run_reductions(Blocks& b, int root) {
  const auto own = static_cast<std::size_t>(b.rank.rank);
  ok(pithAllReduce(b.send.at(), b.recv.at(), count, pithUint32, pithSum, b.comm, b.gpu.stream));
  b.ensure_blocks("all-reduce", 1,
                  [&](std::size_t, std::size_t i) { return sum_of(b.rank.size, i, 0); });
  ok(pithReduceScatter(b.send.at(), b.recv.at(), count, pithUint32, pithSum, b.comm, b.gpu.stream));
  b.ensure_blocks("reduce-scatter", 1, [&](std::size_t, std::size_t i) {
    return sum_of(b.rank.size, i, static_cast<unsigned>(own));
  });
  ok(pithReduce(b.send.at(), b.recv.at(), count, pithUint32, pithSum, root, b.comm, b.gpu.stream));
  b.ensure_blocks("reduce", b.rank.rank == root ? 1 : 0,
                  [&](std::size_t, std::size_t i) { return sum_of(b.rank.size, i, 0); });
}

void run_moves(Blocks& b, int root) {
  const auto own = static_cast<std::size_t>(b.rank.rank);
  const auto from = static_cast<std::size_t>(root);
  const bool is_root = b.rank.rank == root;
  ok(pithBroadcast(b.send.at(), b.recv.at(), count, pithUint32, root, b.comm, b.gpu.stream));
  b.ensure_blocks("broadcast", 1, [&](std::size_t, std::size_t i) { return value(from, i, 0); });
  ok(pithAllGather(b.send.at(), b.recv.at(), count, pithUint32, b.comm, b.gpu.stream));
  b.ensure_blocks("all-gather", b.size,
                  [&](std::size_t block, std::size_t i) { return value(block, i, 0); });
  ok(pithAlltoAll(b.send.at(), b.recv.at(), count, pithUint32, b.comm, b.gpu.stream));
  b.ensure_blocks("all-to-all", b.size,
                  [&](std::size_t block, std::size_t i) { return value(block, i, own); });
  ok(pithGather(b.send.at(), b.recv.at(), count, pithUint32, root, b.comm, b.gpu.stream));
  b.ensure_blocks("gather", is_root ? b.size : 0,
                  [&](std::size_t block, std::size_t i) { return value(block, i, 0); });
  ok(pithScatter(b.send.at(), b.recv.at(), count, pithUint32, root, b.comm, b.gpu.stream));
  b.ensure_blocks("scatter", 1, [&](std::size_t, std::size_t i) { return value(from, i, own); });
}

// Small whole numbers, which every type holds.
void run_types(Rank& rank) {
  const Gpu gpu;
  constexpr std::size_t elements = 5003;
  const Memory send(gpu, 16 * elements), recv(gpu, 16 * elements);
  const ranks::Comm comm(rank.join());
  rank.meet();
  const auto size = static_cast<unsigned>(rank.size);
  for (const pithDataType_t type :
       {pithInt8, pithUint8, pithInt32, pithInt64, pithUint64, pithFloat16, pithFloat32,
        pithFloat64, pithBfloat16, pithComplex64, pithComplex128}) {
    for (const pithRedOp_t op : {pithSum, type < pithComplex64 ? pithMax : pithProd}) {
      for (std::size_t i = 0; i < elements; ++i) {
        ranks::store(send.image(), i, type,
                     static_cast<unsigned>(i % 7 + 1) + static_cast<unsigned>(rank.rank));
      }
      send.put();
      ok(pithAllReduce(send.at(), recv.at(), elements, type, op, comm, gpu.stream));
      gpu.wait();
      recv.get();
      for (std::size_t i = 0; i < elements; ++i) {
        const auto own = static_cast<unsigned>(i % 7 + 1);
        unsigned expected = op == pithSum ? size * own + size * (size - 1) / 2 : own + size - 1;
        for (unsigned r = 0; op == pithProd && r + 1 < size; ++r) expected *= own + r;
        ensure(ranks::holds(recv.image(), i, type, expected),
               "type " + std::to_string(type) + ", op " + std::to_string(op));
      }
    }
  }
  rank.meet();
}

// Odd lengths and addresses, in and out of place.
void run_shapes(Rank& rank) {
  const Gpu gpu;
  constexpr std::size_t room = 70000;
  const Memory send(gpu, 4 * room), recv(gpu, 4 * room);
  const ranks::Comm comm(rank.join());
  rank.meet();
  unsigned round = 0;
  for (const std::size_t elements : {1, 2, 3, 5, 127, 1024, 4099, 65537}) {
    for (const std::size_t offset : {0, 1, 3}) {
      fill(send, rank.rank, ++round);
      recv.fill(0x5A);
      const bool in_place = offset == 3;
      char* const to = (in_place ? send : recv).at(4 * offset);
      ok(pithAllReduce(send.at(4 * offset), to, elements, pithUint32, pithSum, comm, gpu.stream));
      gpu.wait();
      const Memory& result = in_place ? send : recv;
      result.get();
      for (std::size_t i = 0; i < elements; ++i) {
        ensure(result.words()[offset + i] == sum_of(rank.size, offset + i, round),
               "of " + std::to_string(elements) + " at " + std::to_string(offset));
      }
      const std::uint32_t behind =
          in_place ? value_of(rank.rank, offset + elements, round) : 0x5A5A5A5Au;
      ensure(result.words()[offset + elements] == behind, "wrote behind the end");
      rank.meet();
    }
  }
}

// Large ones, twice: the bits of floating sums must not depend on who was first.
void run_large(Rank& rank) {
  const Gpu gpu;
  const std::size_t elements = on_gpu() ? std::size_t{16} << 20 : 200003;
  const Memory send(gpu, 4 * elements), recv(gpu, 4 * elements);
  const ranks::Comm comm(rank.join());
  for (std::size_t i = 0; i < elements; ++i) {
    send.floats()[i] = static_cast<float>(value_of(rank.rank, i, 0)) * 1e-3f;
  }
  send.put();
  rank.meet();
  std::uint64_t first = 0;
  for (int round = 0; round < 3; ++round) {
    recv.fill(0);
    ok(pithAllReduce(send.at(), recv.at(), elements, pithFloat32, pithSum, comm, gpu.stream));
    gpu.wait();
    recv.get();
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < elements; ++i) hash = ranks::mix(hash, recv.words()[i]);
    rank.agree(hash);
    if (round == 0) first = hash;
    ensure(hash == first, "another sum than the first time");
  }
}

// Peers may have mapped what is freed; the next allocation may have its address.
void run_new_memory(Rank& rank) {
  const Gpu gpu;
  const ranks::Comm comm(rank.join());
  const Memory image(gpu, 40000);
  for (unsigned round = 0; round < 6; ++round) {
    CUdeviceptr fresh = 0;
    good(cu().mem_alloc(&fresh, image.bytes() << (round % 3)));
    rank.meet();
    for (unsigned call = 0; call < 8; ++call) {
      fill(image, rank.rank, 10 * round + call);
      good(cu().memcpy_dtod_async(fresh, image.address(), image.bytes(), gpu.stream));
      auto* memory = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fresh));
      ok(pithAllReduce(memory, memory, image.bytes() / 4, pithUint32, pithSum, comm, gpu.stream));
      good(cu().memcpy_dtod_async(image.address(), fresh, image.bytes(), gpu.stream));
      gpu.wait();
      ensure_sum(image, rank.size, 10 * round + call);
      ranks::sleep_s(0.001);  // peers map it meanwhile
    }
    rank.meet();  // no stream waits any more
    good(cu().mem_free(fresh));
    rank.meet();
  }
}

void check_all(int size, const ranks::Body& body, const char* algorithm = nullptr) {
  for (const Peers& peers : every_peer()) {
    Setup setup = setup_of(peers);
    if (algorithm) setup.environment.emplace_back("PITH_ALGO", algorithm);
    check(size, setup, std::string(peers.name) + (algorithm ? algorithm : ""), body);
  }
}

}  // namespace

TEST_CASE("gpu: every collective") {
  for (const int size : {3, 2}) {
    if (size == 2 && !thorough()) continue;
    check_all(size, [](Rank& rank) {
      Blocks blocks(rank);
      for (int root = 0; root < rank.size; ++root) {
        run_reductions(blocks, root);
        run_moves(blocks, root);
      }
    });
  }
}
TEST_CASE("gpu: types") { check_all(2, run_types); }
TEST_CASE("gpu: odd lengths and addresses") {
  check_all(2, run_shapes);
  if (!thorough()) return;
  for (const char* algorithm : {"allreduce:one_shot", "allreduce:two_shot", "allreduce:ring"}) {
    check_all(3, run_shapes, algorithm);
  }
}
TEST_CASE("gpu: large vectors, the same bits each time") {
  check_all(2, run_large);
  if (thorough()) check_all(4, run_large);
}
TEST_CASE("gpu: memory that comes and goes") {
  check_all(2, run_new_memory, "allreduce:two_shot");
  if (thorough()) check_all(3, run_new_memory, "allreduce:one_shot");
}
TEST_CASE("gpu: eight ranks on one device") {
  if (thorough()) check_all(8, run_new_memory);
}
