// The moves whose messages have fewer bits, on every link: types, buffers, groups.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compressed.hpp"
#include "everywhere.hpp"

using namespace ranks;

namespace {

constexpr std::array types = {pithFloat32, pithFloat16, pithBfloat16};
constexpr std::array<std::size_t, 4> counts = {1, 17, 1000, 40'001};
constexpr unsigned most_value = 7;

// Whole numbers that every type and every coding hold as they are: a block of these specs has zeros
// and one magnitude, which is the largest.
unsigned value_of(int rank, std::size_t i) { return mix(i + 1, unsigned(rank)) >> 13 & 1; }

void fill(const Buffer& buffer, std::size_t count, pithDataType_t type, int rank,
          std::size_t first = 0) {
  for (std::size_t i = 0; i < count; ++i) {
    store(buffer.data(), i, type, most_value * value_of(rank, first + i));
  }
}

void expect(bool condition, const char* what, std::size_t i) {
  if (!condition) ensure(false, std::string(what) + " at " + std::to_string(i));
}

void allgathers(Rank& self, pithComm_t comm, pithCompressor_t compressor, std::size_t count,
                pithDataType_t type, bool in_place, std::size_t offset) {
  const auto size = static_cast<std::size_t>(self.size);
  const std::size_t bytes = count * size_of(type);
  const Buffer send(bytes, false, offset);
  const Buffer recv(size * bytes, true, offset);
  fill(send, count, type, self.rank);
  char* const own = recv.data() + static_cast<std::size_t>(self.rank) * bytes;
  if (in_place) std::copy_n(send.data(), bytes, own);
  self.ends(pithAllGatherCompressed(in_place ? own : send.data(), recv.data(), count, type,
                                    compressor, comm, self.stream()));
  for (std::size_t i = 0; i < size * count; ++i) {
    const unsigned value = most_value * value_of(static_cast<int>(i / count), i % count);
    expect(holds(recv.data(), i, type, value), "allgather: a wrong value", i);
  }
}

void reduce_scatters(Rank& self, pithComm_t comm, pithCompressor_t compressor, std::size_t count,
                     pithDataType_t type, bool in_place, std::size_t offset) {
  const auto size = static_cast<std::size_t>(self.size);
  const std::size_t mine = static_cast<std::size_t>(self.rank) * count;
  const Buffer send(size * count * size_of(type), false, offset);
  const Buffer recv(count * size_of(type), false, offset);
  fill(send, size * count, type, self.rank);
  char* const result = in_place ? send.data() + mine * size_of(type) : recv.data();
  self.ends(pithReduceScatterCompressed(send.data(), result, count, type, pithSum, compressor, comm,
                                        self.stream()));
  for (std::size_t i = 0; i < count; ++i) {
    unsigned sum = 0;
    for (int r = 0; r < self.size; ++r) sum += most_value * value_of(r, mine + i);
    expect(holds(result, i, type, sum), "reduce-scatter: a wrong sum", i);
  }
}

void averages(Rank& self, pithComm_t comm, pithCompressor_t compressor, std::size_t count,
              pithDataType_t type) {
  const auto size = static_cast<std::size_t>(self.size);
  const Buffer send(size * count * size_of(type), false);
  const Buffer recv(count * size_of(type), false);
  fill(send, size * count, type, 0);
  self.ends(pithReduceScatterCompressed(send.data(), recv.data(), count, type, pithAvg, compressor,
                                        comm, self.stream()));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = static_cast<std::size_t>(self.rank) * count + i;
    expect(holds(recv.data(), i, type, most_value * value_of(0, at)), "a wrong mean", i);
  }
}

void broadcasts(Rank& self, pithComm_t comm, pithCompressor_t compressor, std::size_t count,
                pithDataType_t type, bool in_place, std::size_t offset) {
  const int root = static_cast<int>(count) % self.size;
  const Buffer send(count * size_of(type), false, offset);
  const Buffer recv(count * size_of(type), true, offset);
  if (self.rank == root) fill(in_place ? recv : send, count, type, root);
  const char* const from = in_place ? recv.data() : send.data();
  self.ends(pithBroadcastCompressed(self.rank == root ? from : nullptr, recv.data(), count, type,
                                    root, compressor, comm, self.stream()));
  for (std::size_t i = 0; i < count; ++i) {
    expect(holds(recv.data(), i, type, most_value * value_of(root, i)), "broadcast: wrong", i);
  }
}

void alltoalls(Rank& self, pithComm_t comm, pithCompressor_t compressor, std::size_t count,
               pithDataType_t type, std::size_t offset) {
  const auto size = static_cast<std::size_t>(self.size);
  const std::size_t mine = static_cast<std::size_t>(self.rank) * count;
  const Buffer send(size * count * size_of(type), false, offset);
  const Buffer recv(size * count * size_of(type), false, offset);
  fill(send, size * count, type, self.rank);
  self.ends(pithAlltoAllCompressed(send.data(), recv.data(), count, type, compressor, comm,
                                   self.stream()));
  for (std::size_t i = 0; i < size * count; ++i) {
    const unsigned value = most_value * value_of(static_cast<int>(i / count), mine + i % count);
    expect(holds(recv.data(), i, type, value), "alltoall: a wrong value", i);
  }
}

void moves(Rank& self) {
  const Comm comm(self.join());
  int turn = 0;
  for (const char* spec : {"int8", "bf16", "fp8:block=128"}) {
    const Compressor compressor(spec);
    for (const std::size_t count : counts) {
      const pithDataType_t type = types[static_cast<std::size_t>(turn) % types.size()];
      const bool in_place = turn % 2 == 0;
      const std::size_t offset = turn % 3 == 1 ? 1 + static_cast<std::size_t>(self.rank) : 0;
      ++turn;
      part(std::string(spec) + ", " + std::to_string(count), [&] {
        allgathers(self, comm, compressor, count, type, in_place, offset);
        reduce_scatters(self, comm, compressor, count, type, in_place, offset);
        averages(self, comm, compressor, count, type);
        broadcasts(self, comm, compressor, count, type, in_place, offset);
        alltoalls(self, comm, compressor, count, type, offset);
      });
    }
  }
}

// In a group with plain calls, several of one compressor, which goes before they begin.
void grouped(Rank& self) {
  const Comm comm(self.join());
  constexpr std::size_t count = 3000;
  const auto size = static_cast<std::size_t>(self.size);
  const std::size_t mine = static_cast<std::size_t>(self.rank) * count;
  const Buffer send(size * count * 4, false);
  const Buffer all(size * count * 4, false);
  const Buffer plain(size * count * 4, false);
  const Buffer sum(count * 4, false);
  const Buffer exchanged(size * count * 4, false);
  fill(send, size * count, pithFloat32, self.rank);
  {
    const Compressor compressor("int8:block=512");
    ok(pithGroupStart());
    ok(pithAllGatherCompressed(send.data(), all.data(), count, pithFloat32, compressor, comm,
                               self.stream()));
    ok(pithAllGather(send.data(), plain.data(), count, pithFloat32, comm, self.stream()));
    ok(pithReduceScatterCompressed(send.data(), sum.data(), count, pithFloat32, pithSum, compressor,
                                   comm, self.stream()));
    ok(pithAlltoAllCompressed(send.data(), exchanged.data(), count, pithFloat32, compressor, comm,
                              self.stream()));
  }
  self.ends(pithGroupEnd());
  ensure(std::memcmp(all.data(), plain.data(), all.size()) == 0, "another result than plain");
  for (std::size_t i = 0; i < count; ++i) {
    unsigned expected = 0;
    for (int r = 0; r < self.size; ++r) expected += most_value * value_of(r, mine + i);
    expect(holds(sum.data(), i, pithFloat32, expected), "a wrong sum", i);
    const unsigned last = most_value * value_of(self.size - 1, mine + i);
    expect(holds(exchanged.data(), (size - 1) * count + i, pithFloat32, last), "a wrong value", i);
  }
}

}  // namespace

TEST_CASE("moves of coded values", "[coded]") { everywhere(1, 5, moves); }
TEST_CASE("moves of coded values in a group", "[coded]") { everywhere(1, 3, grouped); }
TEST_CASE("moves of coded values in many parcels", "[coded]") {
  for (Setup setup : every_link()) {
    INFO(name_of(setup));
    setup.environment = {{"PITH_CHUNK", "256"}, {"PITH_LANES", "3"}};
    CHECK(run(3, setup, moves) == "");
  }
}
