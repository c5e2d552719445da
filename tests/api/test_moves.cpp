// The collectives with a root or one block a rank, on every link: types, operations, memory, roots.
#include <cstring>

#include "everywhere.hpp"
#include "small_values.hpp"

using namespace ranks;

namespace {

constexpr int types = 14;
constexpr int ops = pithNumOps;
constexpr std::array<std::size_t, 7> counts = {1, 3, 64, 1021, 5003, 40'000, 0};

char byte_of(int number, int rank, std::size_t i) {
  return static_cast<char>(
      mix(i, static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(rank)) >> 7);
}

// Buffers of one call; which kind of memory and how aligned differs from rank to rank.
struct Memory {
  Memory(Rank& self, int number, std::size_t send_bytes, std::size_t recv_bytes)
      : offset(number % 4 == 3 ? 1 + static_cast<std::size_t>(self.rank) : 0),
        send(send_bytes, (number + self.rank) % 2 == 0, offset),
        recv(recv_bytes, (number / 2 + self.rank) % 3 == 0, offset) {}
  std::size_t offset;
  Buffer send;
  Buffer recv;
};

// Which calls, and of how many elements at most.
struct Extent {
  Share share;
  std::size_t most = 40'000;

  std::size_t count(int number) const {
    return std::min(most, counts[static_cast<std::size_t>(number) % counts.size()]);
  }
};

void reduces_on(Rank& self, pithComm_t comm, const Extent& extent) {
  for (int number = extent.share.first; number < types * ops; number += extent.share.step) {
    const auto type = static_cast<pithDataType_t>(number / ops);
    const auto op = static_cast<pithRedOp_t>(number % ops);
    if (!is_exact_throughout(type, op, self.size)) continue;
    const std::size_t count = extent.count(number);
    const int root = number % self.size;
    const bool is_root = self.rank == root;
    const bool in_place = number % 3 == 1;
    Memory memory(self, number, count * size_of(type), count * size_of(type));
    char* result = in_place ? memory.send.data() : memory.recv.data();
    for (std::size_t i = 0; i < count; ++i) {
      store(memory.send.data(), i, type, value_of(op, self.rank, i));
    }
    self.ends(pithReduce(memory.send.data(), is_root || in_place ? result : nullptr, count, type,
                         op, root, comm, self.stream()));
    for (std::size_t i = 0; i < count; ++i) {
      if (is_root) ensure(holds(result, i, type, result_of(op, self.size, i)), "a wrong result");
      if (is_root && in_place) continue;
      ensure(holds(memory.send.data(), i, type, value_of(op, self.rank, i)), "send was changed");
    }
  }
}

void reduce_scatters_on(Rank& self, pithComm_t comm, const Extent& extent) {
  const auto size = static_cast<std::size_t>(self.size);
  for (int number = extent.share.first; number < types * ops; number += extent.share.step) {
    const auto type = static_cast<pithDataType_t>(number / ops);
    const auto op = static_cast<pithRedOp_t>(number % ops);
    if (!is_exact_throughout(type, op, self.size)) continue;
    const std::size_t count = extent.count(number);
    const std::size_t mine = count * static_cast<std::size_t>(self.rank);
    const std::size_t bytes = count * size_of(type);
    Memory memory(self, number, size * bytes, bytes);
    for (std::size_t i = 0; i < size * count; ++i) {
      store(memory.send.data(), i, type, value_of(op, self.rank, i));
    }
    const bool in_place = number % 3 == 1;
    char* result = in_place ? memory.send.data() + mine * size_of(type) : memory.recv.data();
    self.ends(pithReduceScatter(memory.send.data(), result, count, type, op, comm, self.stream()));
    for (std::size_t i = 0; i < count; ++i) {
      ensure(holds(result, i, type, result_of(op, self.size, mine + i)), "a wrong result");
    }
  }
}

// Inclusive and exclusive by turns. What a rank gets is over `operands` ranks from 0 on.
void scans_on(Rank& self, pithComm_t comm, const Extent& extent) {
  for (int number = extent.share.first; number < types * ops; number += extent.share.step) {
    const auto type = static_cast<pithDataType_t>(number / ops);
    const auto op = static_cast<pithRedOp_t>(number % ops);
    if (op == pithAvg || !is_exact(type, op, self.size)) continue;
    const bool exclusive = number % 2 == 1;
    const int operands = self.rank + (exclusive ? 0 : 1);
    const std::size_t count = extent.count(number);
    Memory memory(self, number, count * size_of(type), count * size_of(type));
    for (std::size_t i = 0; i < count; ++i) {
      store(memory.send.data(), i, type, value_of(op, self.rank, i));
    }
    const bool in_place = number % 3 == 1 && operands > 0;
    char* result = in_place ? memory.send.data() : memory.recv.data();
    if (operands == 0 && number % 3 == 0) result = nullptr;
    self.ends((exclusive ? pithExScan : pithScan)(memory.send.data(), result, count, type, op, comm,
                                                  self.stream()));
    for (std::size_t i = 0; i < count; ++i) {
      if (operands > 0) ensure(holds(result, i, type, result_of(op, operands, i)), "wrong");
      if (in_place) continue;
      ensure(holds(memory.send.data(), i, type, value_of(op, self.rank, i)), "send was changed");
    }
  }
}

void bcasts_on(Rank& self, pithComm_t comm, const Extent& extent) {
  for (int number = extent.share.first; number < 24; number += extent.share.step) {
    const std::size_t count = extent.count(number);
    const auto type = static_cast<pithDataType_t>(number % types);
    const int root = number % self.size;
    Memory memory(self, number, count * size_of(type), 0);
    char* buffer = memory.send.data();
    for (std::size_t i = 0; i < memory.send.size() && self.rank == root; ++i) {
      buffer[i] = byte_of(number, root, i);
    }
    self.ends(pithBcast(buffer, count, type, root, comm, self.stream()));
    for (std::size_t i = 0; i < memory.send.size(); ++i) {
      ensure(buffer[i] == byte_of(number, root, i), "a wrong byte");
    }
  }
}

void reduces(Rank& self) { reduces_on(self, Comm(self.join()), {}); }
void reduce_scatters(Rank& self) { reduce_scatters_on(self, Comm(self.join()), {}); }
void scans(Rank& self) { scans_on(self, Comm(self.join()), {}); }
void bcasts(Rank& self) { bcasts_on(self, Comm(self.join()), {}); }

void small_moves(Rank& self, Share share) {
  const Comm comm(self.join());
  const Extent extent = {share, 1021};
  reduces_on(self, comm, extent);
  reduce_scatters_on(self, comm, extent);
  scans_on(self, comm, extent);
  bcasts_on(self, comm, extent);
}

void alltoalls(Rank& self) {
  const Comm comm(self.join());
  const auto size = static_cast<std::size_t>(self.size);
  for (int number = 0; number < 24; ++number) {
    const std::size_t count = counts[static_cast<std::size_t>(number) % counts.size()];
    const auto type = static_cast<pithDataType_t>(number % types);
    const std::size_t bytes = count * size_of(type);
    Memory memory(self, number, size * bytes, size * bytes);
    for (std::size_t i = 0; i < size * bytes; ++i) {
      memory.send.data()[i] = byte_of(number, self.rank, i);
    }
    self.ends(
        pithAlltoAll(memory.send.data(), memory.recv.data(), count, type, comm, self.stream()));
    for (std::size_t i = 0; i < size * bytes; ++i) {
      const std::size_t from = i / bytes;
      const std::size_t at = static_cast<std::size_t>(self.rank) * bytes + i % bytes;
      ensure(memory.recv.data()[i] == byte_of(number, static_cast<int>(from), at), "a wrong byte");
    }
  }
}

void gathers_and_scatters(Rank& self) {
  const Comm comm(self.join());
  const auto size = static_cast<std::size_t>(self.size);
  for (int number = 0; number < 48; ++number) {
    const std::size_t count = counts[static_cast<std::size_t>(number) % counts.size()];
    const auto type = static_cast<pithDataType_t>(number % types);
    const int root = number % self.size;
    const bool is_root = self.rank == root;
    const std::size_t bytes = count * size_of(type);
    const std::size_t mine = static_cast<std::size_t>(self.rank) * bytes;
    Memory memory(self, number, bytes, size * bytes);
    char* all = memory.recv.data();
    char* one = is_root && number % 3 == 1 ? all + mine : memory.send.data();
    for (std::size_t i = 0; i < bytes; ++i) one[i] = byte_of(number, 0, mine + i);
    self.ends(pithGather(one, is_root ? all : nullptr, count, type, root, comm, self.stream()));
    for (std::size_t i = 0; i < size * bytes && is_root; ++i) {
      ensure(all[i] == byte_of(number, 0, i), "gather: a wrong byte");
    }
    // And back.
    if (one != all + mine) std::memset(one, 0, bytes);
    self.ends(pithScatter(is_root ? all : nullptr, one, count, type, root, comm, self.stream()));
    for (std::size_t i = 0; i < bytes; ++i) {
      ensure(one[i] == byte_of(number, 0, mine + i), "scatter: a wrong byte");
    }
  }
}

// Each rank has a factor of its own.
void premultiplied(Rank& self) {
  const Comm comm(self.join());
  for (int type = 0; type < types; ++type) {
    const auto t = static_cast<pithDataType_t>(type);
    const std::size_t count = type % 2 == 0 ? 5 : 30'001;
    const auto size = static_cast<std::size_t>(self.size);
    unsigned sum = 0;
    for (int r = 0; r < self.size; ++r) sum += static_cast<unsigned>(r % 2 + 1);
    char scalar[16] = {};
    const Buffer beside(sizeof scalar, false);
    for (char* at : {scalar, beside.data()}) {
      store(at, 0, t, static_cast<unsigned>(self.rank % 2 + 1));
    }
    for (const auto residence : {pithScalarHostImmediate, pithScalarDevice}) {
      pithRedOp_t op = pithSum;
      const bool immediate = residence == pithScalarHostImmediate;
      ok(pithRedOpCreatePreMulSum(&op, immediate ? scalar : beside.data(), t, residence, comm));
      ensure(op >= pithNumOps, "a handle that is one of the fixed operations");
      Buffer send(size * count * size_of(t), false);
      Buffer recv(count * size_of(t), false);
      const auto fill = [&] {
        for (std::size_t i = 0; i < size * count; ++i) store(send.data(), i, t, 1 + (i & 1));
      };
      const auto expect = [&](const char* at, const char* what) {
        for (std::size_t i = 0; i < count; ++i) {
          const bool odd = (i & 1) != 0;
          ensure(holds(at, i, t, sum * (odd ? 2 : 1)), what);
        }
      };
      fill();
      self.ends(pithAllReduce(send.data(), recv.data(), count, t, op, comm, self.stream()));
      expect(recv.data(), "allreduce: a wrong sum");
      self.ends(
          pithReduce(send.data(), recv.data(), count, t, op, self.size - 1, comm, self.stream()));
      if (self.rank == self.size - 1) expect(recv.data(), "reduce: a wrong sum");
      self.ends(pithScan(send.data(), recv.data(), count, t, op, comm, self.stream()));
      if (self.rank == self.size - 1) expect(recv.data(), "scan: a wrong sum");
      for (std::size_t i = 0; i < size * count; ++i) store(send.data(), i, t, 1 + (i % count & 1));
      self.ends(pithReduceScatter(send.data(), recv.data(), count, t, op, comm, self.stream()));
      expect(recv.data(), "reduce-scatter: a wrong sum");
      fill();
      // The handle may go before the group has run.
      ok(pithGroupStart());
      ok(pithAllReduce(send.data(), send.data(), count, t, op, comm, self.stream()));
      ok(pithRedOpDestroy(op, comm));
      self.ends(pithGroupEnd());
      expect(send.data(), "in place: a wrong sum");
    }
  }
}

void registrations(Rank& self) {
  const Comm comm(self.join());
  std::vector<float> values(1000, 1.0f);
  void* handle = nullptr;
  ok(pithCommRegister(comm, values.data(), values.size() * sizeof(float), &handle));
  ensure(handle != nullptr, "no handle");
  ok(pithAllReduce(values.data(), values.data(), values.size(), pithFloat32, pithSum, comm,
                   nullptr));
  ensure(values[999] == static_cast<float>(self.size), "a wrong sum");
  ok(pithCommDeregister(comm, handle));
  fails(pithCommDeregister(comm, handle), pithInvalidArgument, {"handle is 0x"});
  ok(pithCommDeregister(comm, nullptr));
}

void everywhere(const Body& body) { ranks::everywhere(1, 5, body); }

}  // namespace

TEST_CASE("reduce", "[moves]") { everywhere(reduces); }
TEST_CASE("reduce-scatter", "[moves]") { everywhere(reduce_scatters); }
TEST_CASE("scan and exclusive scan", "[moves]") { everywhere(scans); }
TEST_CASE("bcast", "[moves]") { everywhere(bcasts); }
TEST_CASE("alltoall", "[moves]") { everywhere(alltoalls); }
TEST_CASE("gather and scatter", "[moves]") { everywhere(gathers_and_scatters); }
TEST_CASE("premultiplied sums", "[moves]") { everywhere(premultiplied); }
TEST_CASE("registered buffers", "[moves][host]") { everywhere(registrations); }

TEST_CASE("reduce, reduce-scatter, scans and bcast on 6 to 17 ranks", "[many-ranks]") {
  on_many_ranks(small_moves);
}

TEST_CASE("reduce and reduce-scatter by algorithms that are asked for", "[moves]") {
  std::size_t link = 0;
  const std::vector<Setup> links = every_link();
  for (const char* algorithm : {"ring", "recursive_halving"}) {
    Setup setup = links[link++ % links.size()];
    INFO(name_of(setup) << ", " << algorithm);
    setup.environment = {{"PITH_ALGO", std::string("reduce_scatter:") + algorithm}};
    CHECK(run(4, setup, reduces) == "");
    CHECK(run(4, setup, reduce_scatters) == "");
  }
}

TEST_CASE("scans by algorithms that are asked for", "[moves]") {
  std::size_t link = 0;
  const std::vector<Setup> links = every_link();
  for (const std::string algorithm : {"recursive_doubling", "chain"}) {
    Setup setup = links[link++ % links.size()];
    INFO(name_of(setup) << ", " << algorithm);
    setup.environment = {{"PITH_ALGO", "scan:" + algorithm + ",exscan:" + algorithm}};
    CHECK(run(4, setup, scans) == "");
  }
}

TEST_CASE("moves in many chunks", "[moves]") {
  for (Setup setup : every_link()) {
    INFO(name_of(setup));
    setup.environment = {{"PITH_CHUNK", "256"}, {"PITH_LANES", "3"}};
    CHECK(run(3, setup, gathers_and_scatters) == "");
    CHECK(run(3, setup, premultiplied) == "");
    CHECK(run(3, setup, scans) == "");
  }
}

// What the thread sanitizer sees: ranks that share a process.
TEST_CASE("moves between threads", "[moves][threads][host]") {
  for (const char* transport : {"local", "shm", "tcp"}) {
    Setup setup;
    setup.way = Way::all;
    setup.transport = transport;
    INFO(name_of(setup));
    CHECK(run(3, setup, reduce_scatters) == "");
    CHECK(run(3, setup, gathers_and_scatters) == "");
  }
}
