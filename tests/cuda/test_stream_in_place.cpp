// Calls in place on device memory, through the C API: each rank's part lies where NCCL's callers
// have it, inside of what is sent or received.
#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

struct Place {
  std::size_t ranks;
  std::size_t rank;
  std::size_t root;
};

// What a rank's block holds afterwards; `result` says which blocks are looked at.
struct Case {
  const char* name;
  pithResult_t (*call)(const Rank& rank, const Blocks& memory, const Place& place);
  bool (*result)(const Place& place, std::size_t block);
  std::uint32_t (*expected)(const Place& place, std::size_t block, std::size_t i);
};

bool everywhere(const Place&, std::size_t) { return true; }
bool own_block(const Place& place, std::size_t block) { return block == place.rank; }
bool first_block(const Place&, std::size_t block) { return block == 0; }

constexpr Case cases[] = {
    {"allreduce",
     [](const Rank& rank, const Blocks& memory, const Place&) {
       return pithAllReduce(memory.at(), memory.at(), count, pithUint32, pithSum, rank.comm,
                            rank.stream.handle);
     },
     first_block,
     [](const Place& place, std::size_t, std::size_t i) { return sum_of(place.ranks, 0, i); }},
    {"reduce",
     [](const Rank& rank, const Blocks& memory, const Place& place) {
       return pithReduce(memory.at(), memory.at(), count, pithUint32, pithSum,
                         static_cast<int>(place.root), rank.comm, rank.stream.handle);
     },
     [](const Place& place, std::size_t block) { return block == 0 && place.rank == place.root; },
     [](const Place& place, std::size_t, std::size_t i) { return sum_of(place.ranks, 0, i); }},
    {"reduce-scatter",
     [](const Rank& rank, const Blocks& memory, const Place& place) {
       return pithReduceScatter(memory.at(), memory.at(place.rank), count, pithUint32, pithSum,
                                rank.comm, rank.stream.handle);
     },
     own_block,
     [](const Place& place, std::size_t block, std::size_t i) {
       return sum_of(place.ranks, block, i);
     }},
    {"all-gather",
     [](const Rank& rank, const Blocks& memory, const Place& place) {
       return pithAllGather(memory.at(place.rank), memory.at(), count, pithUint32, rank.comm,
                            rank.stream.handle);
     },
     everywhere,
     [](const Place&, std::size_t block, std::size_t i) { return value_of(block, block, i); }},
    {"broadcast",
     [](const Rank& rank, const Blocks& memory, const Place& place) {
       return pithBroadcast(memory.at(), memory.at(), count, pithUint32,
                            static_cast<int>(place.root), rank.comm, rank.stream.handle);
     },
     first_block,
     [](const Place& place, std::size_t, std::size_t i) { return value_of(place.root, 0, i); }},
    {"gather",
     [](const Rank& rank, const Blocks& memory, const Place& place) {
       return pithGather(memory.at(place.rank), memory.at(), count, pithUint32,
                         static_cast<int>(place.root), rank.comm, rank.stream.handle);
     },
     [](const Place& place, std::size_t) { return place.rank == place.root; },
     [](const Place&, std::size_t block, std::size_t i) { return value_of(block, block, i); }},
    {"scatter",
     [](const Rank& rank, const Blocks& memory, const Place& place) {
       return pithScatter(memory.at(), memory.at(place.rank), count, pithUint32,
                          static_cast<int>(place.root), rank.comm, rank.stream.handle);
     },
     own_block,
     [](const Place& place, std::size_t block, std::size_t i) {
       return value_of(place.root, block, i);
     }},
};

bool is_right(const Case& one, const Blocks& memory, const Place& place) {
  for (std::size_t b = 0; b < place.ranks; ++b) {
    if (!one.result(place, b)) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if (memory.at(b)[i] != one.expected(place, b, i)) return false;
    }
  }
  return true;
}

void check_case(World& world, const Case& one, std::size_t root) {
  const std::size_t n = world.ranks.size();
  std::vector<std::unique_ptr<Blocks>> memory;
  for (std::size_t r = 0; r < n; ++r) {
    memory.push_back(std::make_unique<Blocks>(n));
    for (std::size_t b = 0; b < n; ++b) {
      for (std::size_t i = 0; i < count; ++i) memory[r]->at(b)[i] = value_of(r, b, i);
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    REQUIRE(one.call(*world.ranks[r], *memory[r], {n, r, root}) == pithSuccess);
  }
  world.finish();
  for (std::size_t r = 0; r < n; ++r) {
    INFO(one.name << ", rank " << r << " of " << n << ", root " << root);
    CHECK(is_right(one, *memory[r], {n, r, root}));
  }
}

}  // namespace

TEST_CASE("in place on device memory") {
  const test::Device device;
  const int n = GENERATE(1, 2, 3, 5);
  World world(n);
  for (const Case& one : cases) {
    for (std::size_t root = 0; root < world.ranks.size(); ++root) check_case(world, one, root);
  }
}
