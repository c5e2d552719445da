// Every collective on every link: all types and operations, all ways to pass memory.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "everywhere.hpp"
#include "small_values.hpp"

using namespace ranks;

namespace {

constexpr int types = 14;
constexpr int ops = pithNumOps;

// How the buffers of one call lie; differs from rank to rank where ranks may differ.
struct Placement {
  bool in_place;
  bool registered_send;
  bool registered_recv;
  std::size_t offset;

  Placement(int number, int rank)
      : in_place(number % 3 == 1),
        registered_send((number + rank) % 2 == 0),
        registered_recv((number / 2 + rank) % 3 == 0),
        offset(number % 4 == 3 ? 1 + static_cast<std::size_t>(rank) : 0) {}
};

// Returns a hash of the result, which must be the same on all ranks.
std::uint64_t reduce_once(Rank& self, pithComm_t comm, pithDataType_t type, pithRedOp_t op,
                          std::size_t count, int number) {
  const Placement place(number, self.rank);
  const std::size_t bytes = count * size_of(type);
  Buffer send(bytes, place.registered_send, place.offset);
  Buffer recv(bytes, place.registered_recv, place.offset);
  Buffer& result = place.in_place ? send : recv;
  for (std::size_t i = 0; i < count; ++i) {
    store(send.data(), i, type, value_of(op, self.rank, i));
  }
  self.ends(pithAllReduce(send.data(), result.data(), count, type, op, comm, self.stream()));
  for (std::size_t i = 0; i < count; ++i) {
    if (holds(result.data(), i, type, result_of(op, self.size, i))) continue;
    ensure(false, "type " + std::to_string(type) + " op " + std::to_string(op) + " count " +
                      std::to_string(count) + ": element " + std::to_string(i) + " is wrong");
  }
  if (place.in_place) return hash_of(result.data(), bytes, 1);
  for (std::size_t i = 0; i < count; ++i) {
    ensure(holds(send.data(), i, type, value_of(op, self.rank, i)), "send was changed");
  }
  return hash_of(result.data(), bytes, 1);
}

void all_types_and_ops(Rank& self) {
  const Comm comm(self.join());
  constexpr std::array<std::size_t, 6> counts = {1, 7, 130, 1021, 3000, 5003};
  std::uint64_t hash = 0;
  int number = 0;
  for (int type = 0; type < types; ++type) {
    for (int op = 0; op < ops; ++op, ++number) {
      const std::size_t count = counts[static_cast<std::size_t>(number) % counts.size()];
      const auto of = static_cast<pithDataType_t>(type);
      const auto by = static_cast<pithRedOp_t>(op);
      if (!is_exact(of, by, self.size)) continue;
      hash = mix(hash, reduce_once(self, comm, of, by, count, number));
    }
  }
  for (int i = 0; i < 3; ++i, ++number) {
    hash = mix(hash, reduce_once(self, comm, pithInt32, pithSum, 150'003, number));
  }
  self.agree(hash);
}

void types_and_ops_in_turn(Rank& self, Share share) {
  const Comm comm(self.join());
  constexpr std::array<std::size_t, 4> counts = {1, 7, 130, 1021};
  std::uint64_t hash = 0;
  for (int number = share.first; number < types * ops; number += share.step) {
    const auto type = static_cast<pithDataType_t>(number / ops);
    const auto op = static_cast<pithRedOp_t>(number % ops);
    if (!is_exact_throughout(type, op, self.size)) continue;
    const std::size_t count = counts[static_cast<std::size_t>(number / share.step) % counts.size()];
    hash = mix(hash, reduce_once(self, comm, type, op, count, number));
  }
  self.agree(hash);
}

// Random 64-bit integers: whatever is wrong, missing or counted twice changes the sum.
void random_sums(Rank& self) {
  const Comm comm(self.join());
  for (int number = 0; number < 12; ++number) {
    const std::size_t count = std::size_t{1} << (number + 5);
    const Placement place(number, self.rank);
    Buffer send(count * 8, place.registered_send, place.offset);
    Buffer recv(count * 8, place.registered_recv, place.offset);
    const auto value = [&](int rank, std::size_t i) {
      return mix(mix(i, static_cast<std::uint64_t>(rank)), static_cast<std::uint64_t>(number));
    };
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t mine = value(self.rank, i);
      std::memcpy(send.data() + 8 * i, &mine, 8);
    }
    self.ends(
        pithAllReduce(send.data(), recv.data(), count, pithUint64, pithSum, comm, self.stream()));
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t sum = 0;
      std::uint64_t got = 0;
      for (int r = 0; r < self.size; ++r) sum += value(r, i);
      std::memcpy(&got, recv.data() + 8 * i, 8);
      ensure(got == sum, "a wrong sum");
    }
  }
}

// Rounding depends on the order of the additions, which must be one and the same for all ranks.
void same_bits(Rank& self) {
  const Comm comm(self.join());
  std::uint64_t hash = 0;
  for (const std::size_t count : {3u, 600u, 10'000u, 300'000u}) {
    const Buffer given(4 * count, false);
    const Buffer received(4 * count, false);
    auto* values = given.as<float>();
    const auto* sums = received.as<float>();
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t random = mix(i, static_cast<std::uint64_t>(self.rank) + 1);
      values[i] = static_cast<float>(random >> 40) * 1e-3f + 0.1f;
    }
    self.ends(
        pithAllReduce(values, received.data(), count, pithFloat32, pithSum, comm, self.stream()));
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int r = 0; r < self.size; ++r) {
        const std::uint64_t random = mix(i, static_cast<std::uint64_t>(r) + 1);
        sum += static_cast<float>(random >> 40) * 1e-3f + 0.1f;
      }
      ensure(std::abs(sums[i] - sum) <= 1e-6 * self.size * sum, "a sum is off");
    }
    hash = hash_of(received.data(), 4 * count, hash);
  }
  self.agree(hash);
}

// The sum of such inputs has no place in their type, their mean has. A positive float's bits count
// the floats below it.
void large_averages(Rank& self) {
  struct Large {
    pithDataType_t type;
    std::uint16_t bits;  // 40000, 448, 57344
  };
  constexpr Large larges[] = {
      {pithFloat16, 0x78e2}, {pithFloat8e4m3, 0x7e}, {pithFloat8e5m2, 0x7b}};
  const Comm comm(self.join());
  for (const auto& [type, bits] : larges) {
    const auto blocks = static_cast<std::size_t>(self.size);
    constexpr std::size_t count = 300;
    const std::size_t element = size_of(type);
    const Buffer send(blocks * count * element, false);
    const Buffer recv(send.size(), false);
    for (std::size_t i = 0; i < blocks * count; ++i) {
      std::memcpy(send.data() + i * element, &bits, element);
    }
    const auto check = [&, want = bits](std::size_t results) {
      for (std::size_t i = 0; i < results; ++i) {
        std::uint16_t got = 0;
        std::memcpy(&got, recv.data() + i * element, element);
        ensure(std::abs(got - want) <= self.size, "the mean of large numbers is off");
      }
    };
    self.ends(pithAllReduce(send.data(), recv.data(), blocks * count, type, pithAvg, comm,
                            self.stream()));
    check(blocks * count);
    self.ends(
        pithReduceScatter(send.data(), recv.data(), count, type, pithAvg, comm, self.stream()));
    check(count);
    self.ends(pithReduce(send.data(), recv.data(), count, type, pithAvg, 0, comm, self.stream()));
    if (self.rank == 0) check(count);
  }
}

void broadcasts(Rank& self) {
  const Comm comm(self.join());
  int number = 0;
  for (const std::size_t count : {1u, 1000u, 65'537u, 500'000u}) {
    for (int root = 0; root < self.size; ++root, ++number) {
      const auto type = static_cast<pithDataType_t>(number % types);
      const Placement place(number, self.rank);
      const std::size_t bytes = count * size_of(type);
      Buffer send(bytes, place.registered_send, place.offset);
      Buffer recv(bytes, place.registered_recv, place.offset);
      Buffer& result = place.in_place ? send : recv;
      const bool is_root = self.rank == root;
      const auto byte = [&](std::size_t i) {
        return static_cast<char>(mix(i, static_cast<std::uint64_t>(number)));
      };
      if (is_root) {
        for (std::size_t i = 0; i < bytes; ++i) send.data()[i] = byte(i);
      }
      const bool null_send = !is_root && number % 2 == 0;
      self.ends(pithBroadcast(null_send ? nullptr : send.data(), result.data(), count, type, root,
                              comm, self.stream()));
      for (std::size_t i = 0; i < bytes; ++i) ensure(result.data()[i] == byte(i), "a wrong byte");
    }
  }
}

void gathers(Rank& self) {
  const Comm comm(self.join());
  int number = 0;
  for (const std::size_t count : {1u, 100u, 5'000u, 100'003u}) {
    for (int turn = 0; turn < 3; ++turn, ++number) {
      const auto type = static_cast<pithDataType_t>(number % types);
      const Placement place(number, self.rank);
      const std::size_t bytes = count * size_of(type);
      const auto mine = static_cast<std::size_t>(self.rank) * bytes;
      Buffer recv(bytes * static_cast<std::size_t>(self.size), place.registered_recv, place.offset);
      Buffer apart(bytes, place.registered_send, place.offset);
      char* send = place.in_place ? recv.data() + mine : apart.data();
      const auto byte = [&](std::size_t i) {
        return static_cast<char>(mix(i, static_cast<std::uint64_t>(number)));
      };
      for (std::size_t i = 0; i < bytes; ++i) send[i] = byte(mine + i);
      self.ends(pithAllGather(send, recv.data(), count, type, comm, self.stream()));
      for (std::size_t i = 0; i < recv.size(); ++i) {
        ensure(recv.data()[i] == byte(i), "a wrong byte");
      }
    }
  }
}

void barriers(Rank& self) {
  const Comm comm(self.join());
  for (std::uint64_t turn = 1; turn <= 50; ++turn) {
    self.slot(self.rank) = turn;
    self.ends(pithBarrier(comm, self.stream()));
    for (int r = 0; r < self.size; ++r) {
      ensure(self.slot(r) >= turn, "a rank had not come to the barrier");
    }
  }
}

// Long enough for every algorithm's way of long vectors, up to and just below 16 MiB a rank. Every
// element has a value of its own, which one multiplication finds, for there are millions.
class Long {
 public:
  // How the buffers lie.
  struct Where {
    bool in_place = false;
    bool registered = false;
    std::size_t offset = 0;
  };

  Long(Rank& self, pithComm_t comm) : self_(self), comm_(comm) {}

  void reduces(std::size_t count, const Where& where) const {
    const Pair pair(8 * count, where);
    fill(pair.send, count, self_.rank);
    self_.ends(
        pithAllReduce(pair.send, pair.recv, count, pithUint64, pithSum, comm_, self_.stream()));
    ensure(holds_sum(pair.recv, 0, count), "a wrong sum");
  }
  void reduces_to(int root, std::size_t count, const Where& where) const {
    const Pair pair(8 * count, where);
    fill(pair.send, count, self_.rank);
    self_.ends(
        pithReduce(pair.send, pair.recv, count, pithUint64, pithSum, root, comm_, self_.stream()));
    ensure(self_.rank != root || holds_sum(pair.recv, 0, count), "a wrong sum at the root");
  }
  // The inputs of all blocks have `count` elements, those of a block `count` by size.
  void reduce_scatters(std::size_t count, const Where& where) const {
    const std::size_t block = count / size();
    const Buffer all(8 * block * size(), where.registered, where.offset);
    const Buffer apart(where.in_place ? 1 : 8 * block, where.registered, where.offset);
    char* recv = where.in_place ? all.data() + 8 * block * rank() : apart.data();
    fill(all.data(), block * size(), self_.rank);
    self_.ends(
        pithReduceScatter(all.data(), recv, block, pithUint64, pithSum, comm_, self_.stream()));
    ensure(holds_sum(recv, block * rank(), block), "a wrong sum of a block");
  }
  void broadcasts(int root, std::size_t count, const Where& where) const {
    const Pair pair(8 * count, where);
    if (self_.rank == root) fill(pair.send, count, root);
    self_.ends(pithBroadcast(pair.send, pair.recv, count, pithUint64, root, comm_, self_.stream()));
    ensure(holds(pair.recv, 0, count, root), "a wrong element of a broadcast");
  }
  void gathers(std::size_t count, const Where& where) const {
    const Buffer all(8 * count * size(), where.registered, where.offset);
    const Buffer apart(where.in_place ? 1 : 8 * count, where.registered, where.offset);
    char* send = where.in_place ? all.data() + 8 * count * rank() : apart.data();
    fill(send, count, self_.rank);
    self_.ends(pithAllGather(send, all.data(), count, pithUint64, comm_, self_.stream()));
    check_gathered(all, count);
  }
  // To a root and back.
  void gathers_and_scatters(int root, std::size_t count, const Where& where) const {
    const Buffer all(8 * count * size(), where.registered, where.offset);
    const Buffer own(8 * count, where.registered, where.offset);
    fill(own.data(), count, self_.rank);
    self_.ends(pithGather(own.data(), all.data(), count, pithUint64, root, comm_, self_.stream()));
    if (self_.rank == root) check_gathered(all, count);
    std::memset(own.data(), 0, 8 * count);
    self_.ends(pithScatter(all.data(), own.data(), count, pithUint64, root, comm_, self_.stream()));
    ensure(holds(own.data(), 0, count, self_.rank), "a wrong element of a scatter");
  }
  // What goes from rank a to rank b are the elements of a in b's block.
  void all_to_alls(std::size_t count, const Where& where) const {
    const std::size_t block = count / size();
    const Buffer send(8 * block * size(), where.registered, where.offset);
    const Buffer recv(8 * block * size(), where.registered, where.offset);
    fill(send.data(), block * size(), self_.rank);
    self_.ends(pithAlltoAll(send.data(), recv.data(), block, pithUint64, comm_, self_.stream()));
    for (int r = 0; r < self_.size; ++r) {
      const char* from = recv.data() + 8 * block * static_cast<std::size_t>(r);
      ensure(holds(from, block * rank(), block, r), "a wrong element of an exchange");
    }
  }

 private:
  // Both buffers of a call, or one for both.
  struct Pair {
    Pair(std::size_t bytes, const Where& where)
        : first(bytes, where.registered, where.offset),
          second(where.in_place ? 1 : bytes, where.registered, where.offset),
          send(first.data()),
          recv(where.in_place ? first.data() : second.data()) {}
    Buffer first;
    Buffer second;
    char* send;
    char* recv;
  };

  static constexpr std::uint64_t index_step = 0x9E3779B97F4A7C15u;
  static constexpr std::uint64_t rank_step = 0xD1B54A32D192ED03u;
  static std::uint64_t value(int rank, std::size_t i) {
    return i * index_step + static_cast<std::uint64_t>(rank) * rank_step;
  }
  static void fill(char* at, std::size_t count, int rank) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t one = value(rank, i);
      std::memcpy(at + 8 * i, &one, 8);
    }
  }
  // Whether element i is of(first + i).
  template <class Of>
  static bool are(const char* at, std::size_t first, std::size_t count, Of of) {
    bool right = true;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t got = 0;
      std::memcpy(&got, at + 8 * i, 8);
      right &= got == of(first + i);
    }
    return right;
  }
  static bool holds(const char* at, std::size_t first, std::size_t count, int rank) {
    return are(at, first, count, [rank](std::size_t i) { return value(rank, i); });
  }
  bool holds_sum(const char* at, std::size_t first, std::size_t count) const {
    const std::uint64_t ranks = size();
    const std::uint64_t of_ranks = ranks * (ranks - 1) / 2 * rank_step;
    return are(at, first, count, [=](std::size_t i) { return ranks * i * index_step + of_ranks; });
  }
  void check_gathered(const Buffer& all, std::size_t count) const {
    for (int r = 0; r < self_.size; ++r) {
      const char* from = all.data() + 8 * count * static_cast<std::size_t>(r);
      ensure(holds(from, 0, count, r), "a wrong element of a gather");
    }
  }
  std::size_t size() const { return static_cast<std::size_t>(self_.size); }
  std::size_t rank() const { return static_cast<std::size_t>(self_.rank); }

  Rank& self_;
  pithComm_t comm_;
};

void sixteen_MiB(Rank& self) {
  const Comm comm(self.join());
  const Long calls(self, comm);
  constexpr std::size_t whole = (16 << 20) / 8;
  const bool even = self.rank % 2 == 0;  // registered on some ranks
  calls.reduces(whole, {});
  calls.reduces(whole - 1, {.in_place = true});
  calls.reduces(whole, {.in_place = true, .registered = true});
  calls.reduces(whole - 1, {.registered = even, .offset = 3});
  calls.reduces_to(1, whole, {.registered = even});
  calls.reduce_scatters(whole, {.in_place = even, .offset = 1});
  calls.broadcasts(self.size - 1, whole, {.in_place = true});
  calls.broadcasts(0, whole - 1, {.registered = true, .offset = even ? 5u : 0u});
  calls.gathers(whole, {.in_place = true, .registered = even});
  calls.gathers(whole - 1, {.offset = 1});
  calls.gathers_and_scatters(1, whole / 2, {.registered = even, .offset = 7});
  calls.all_to_alls(whole, {.registered = !even, .offset = even ? 1u : 0u});
}

void empty_calls(Rank& self) {
  const Comm comm(self.join());
  for (int turn = 0; turn < 3; ++turn) {
    self.ends(pithAllReduce(nullptr, nullptr, 0, pithFloat32, pithSum, comm, self.stream()));
    self.ends(pithBroadcast(nullptr, nullptr, 0, pithInt8, self.size - 1, comm, self.stream()));
    self.ends(pithAllGather(nullptr, nullptr, 0, pithInt64, comm, self.stream()));
    reduce_once(self, comm, pithFloat64, pithSum, 5, turn);
  }
  int count = 0;
  int rank = -1;
  ok(pithCommCount(comm, &count));
  ok(pithCommUserRank(comm, &rank));
  ensure(count == self.size && rank == self.rank, "Count or UserRank is wrong");
}

void everywhere(const Body& body) { ranks::everywhere(1, 5, body); }

}  // namespace

TEST_CASE("allreduce: every type and operation", "[calls]") { everywhere(all_types_and_ops); }
TEST_CASE("allreduce: random integers", "[calls]") { everywhere(random_sums); }
TEST_CASE("allreduce: the same bits on all ranks", "[calls]") { everywhere(same_bits); }
TEST_CASE("averages of large narrow floats", "[calls]") { everywhere(large_averages); }
TEST_CASE("broadcast: every root", "[calls]") { everywhere(broadcasts); }
TEST_CASE("allgather", "[calls]") { everywhere(gathers); }
TEST_CASE("barrier", "[calls]") { everywhere(barriers); }
TEST_CASE("calls of count 0", "[calls]") { everywhere(empty_calls); }

TEST_CASE("sixteen MiB", "[calls][host]") { ranks::everywhere(2, 3, sixteen_MiB); }

TEST_CASE("seventeen ranks", "[calls][host]") {
  if (!std::getenv("PITH_TEST_FULL")) {
    WARN("skipped: it takes long, PITH_TEST_FULL=1 runs it");
    return;
  }
  ranks::everywhere(17, 17, all_types_and_ops);
  ranks::everywhere(17, 17, gathers);
}

TEST_CASE("allreduce: every type and operation on 6 to 17 ranks", "[many-ranks]") {
  on_many_ranks(types_and_ops_in_turn);
}

// One after the other on the links: what an algorithm is to a link its own tests tell.
TEST_CASE("allreduce by algorithms that are asked for", "[calls]") {
  std::size_t link = 0;
  const std::vector<Setup> links = every_link();
  for (const char* algorithm : {"ring", "recursive_doubling", "rabenseifner", "double_tree"}) {
    Setup setup = links[link++ % links.size()];
    INFO(name_of(setup) << ", " << algorithm);
    setup.environment = {{"PITH_ALGO", std::string("allreduce:") + algorithm}};
    CHECK(run(3, setup, all_types_and_ops) == "");
  }
}

TEST_CASE("calls in many chunks", "[calls]") {
  for (Setup setup : every_link()) {
    INFO(name_of(setup));
    setup.environment = {{"PITH_CHUNK", "64"}, {"PITH_LANES", "3"}};
    CHECK(run(3, setup, random_sums) == "");
    setup.environment = {{"PITH_CHUNK", "1"}};
    CHECK(run(3, setup, empty_calls) == "");
  }
}

// What the thread sanitizer sees: ranks that share a process.
TEST_CASE("collectives between threads", "[calls][threads][host]") {
  for (const char* transport : {"local", "shm", "tcp"}) {
    for (const Way way : {Way::all, Way::threads}) {
      if (way == Way::threads && std::string(transport) == "local") continue;
      Setup setup;
      setup.way = way;
      setup.transport = transport;
      INFO(name_of(setup));
      CHECK(run(3, setup, all_types_and_ops) == "");
      CHECK(run(2, setup, broadcasts) == "");
      CHECK(run(3, setup, gathers) == "");
      CHECK(run(3, setup, barriers) == "");
    }
  }
}
