// Allgather, reduce-scatter and alltoall of blocks that differ in size, on every link.
#include <cmath>
#include <numeric>

#include "everywhere.hpp"
#include "small_values.hpp"

using namespace ranks;

namespace {

constexpr int types = 14;
constexpr int ops = pithNumOps;
constexpr int kinds = 6;

using Sizes = std::vector<std::size_t>;

// Elements that go from one rank to another; in the two other collectives to or from all.
std::size_t size_for(int number, int from, int to, int ranks) {
  const auto f = static_cast<std::size_t>(from);
  const auto t = static_cast<std::size_t>(to);
  switch (number % kinds) {
    case 0:
      return 100 * t + f + 1;
    case 1:  // one rank has all
      return to == number % ranks ? 40'000 : 0;
    case 2:
      return mix(f + 1, t + static_cast<std::size_t>(number)) % 20'000;
    case 3:  // one rank has none
      return to == number % ranks ? 0 : 3000;
    case 4:
      return 0;
    default:  // whole chunks, some
      return (f + t) % 3 * 65'536;
  }
}

// Where the blocks lie in a buffer: packed, or from its end on with an element between them.
struct Layout {
  Layout(const Sizes& sizes, bool packed) : counts(sizes), displs(sizes.size()) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t r = packed ? i : sizes.size() - 1 - i;
      displs[r] = elements;
      elements += sizes[r] + (packed ? 0 : 1);
    }
    argument = packed ? nullptr : displs.data();
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  Sizes counts;
  Sizes displs;
  const std::size_t* argument;
  std::size_t elements = 0;
};

unsigned moved_value(int number, int rank, std::size_t i) {
  const auto key = static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(rank);
  return static_cast<unsigned>(mix(i + 1, key) % 61);
}

Sizes sizes_for(const Rank& self, int number, bool gets) {
  Sizes sizes;
  for (int other = 0; other < self.size; ++other) {
    sizes.push_back(gets ? size_for(number, other, self.rank, self.size)
                         : size_for(number, self.rank, other, self.size));
  }
  return sizes;
}

// Of all ranks, as they see it.
Sizes common_sizes(const Rank& self, int number) {
  Sizes sizes;
  for (int to = 0; to < self.size; ++to) sizes.push_back(size_for(number, 0, to, self.size));
  return sizes;
}

void gathers_on(Rank& self, pithComm_t comm) {
  const auto me = static_cast<std::size_t>(self.rank);
  for (int number = 0; number < 24; ++number) {
    const auto type = static_cast<pithDataType_t>(number % types);
    const std::size_t unit = size_of(type);
    const Layout layout(common_sizes(self, number), number % 4 < 2);
    const std::size_t own = layout.counts[me];
    const Buffer send(own * unit, number % 2 == 0);
    const Buffer recv(layout.elements * unit, number % 3 == 0);
    const bool in_place = number % 5 == 1;
    char* from = in_place ? recv.data() + layout.displs[me] * unit : send.data();
    for (std::size_t i = 0; i < own; ++i) store(from, i, type, moved_value(number, self.rank, i));
    self.ends(pithAllGatherV(own > 0 ? from : nullptr, layout.elements > 0 ? recv.data() : nullptr,
                             layout.counts.data(), layout.argument, type, comm, self.stream()));
    for (int rank = 0; rank < self.size; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const char* block = recv.data() + layout.displs[r] * unit;
      for (std::size_t i = 0; i < layout.counts[r]; ++i) {
        ensure(holds(block, i, type, moved_value(number, rank, i)), "a wrong element");
      }
    }
  }
}

void reduces_on(Rank& self, pithComm_t comm) {
  const auto me = static_cast<std::size_t>(self.rank);
  for (int number = 0; number < types * ops; ++number) {
    const auto type = static_cast<pithDataType_t>(number / ops);
    const auto op = static_cast<pithRedOp_t>(number % ops);
    if (!is_exact_throughout(type, op, self.size)) continue;
    const std::size_t unit = size_of(type);
    const Layout layout(common_sizes(self, number), true);
    const std::size_t own = layout.counts[me];
    const std::size_t begin = layout.displs[me];
    const Buffer send(layout.elements * unit, number % 2 == 0);
    const Buffer recv(own * unit, number % 3 == 0);
    for (std::size_t i = 0; i < layout.elements; ++i) {
      store(send.data(), i, type, value_of(op, self.rank, i));
    }
    char* to = number % 4 == 1 ? send.data() + begin * unit : recv.data();
    self.ends(pithReduceScatterV(layout.elements > 0 ? send.data() : nullptr,
                                 own > 0 ? to : nullptr, layout.counts.data(), type, op, comm,
                                 self.stream()));
    for (std::size_t i = 0; i < own; ++i) {
      ensure(holds(to, i, type, result_of(op, self.size, begin + i)), "a wrong sum");
    }
  }
}

void exchanges_on(Rank& self, pithComm_t comm) {
  const auto me = static_cast<std::size_t>(self.rank);
  for (int number = 0; number < 24; ++number) {
    const auto type = static_cast<pithDataType_t>(number % types);
    const std::size_t unit = size_of(type);
    const Layout out(sizes_for(self, number, false), number % 4 < 2);
    const Layout in(sizes_for(self, number, true), number % 3 == 0);
    const Buffer send(out.elements * unit, number % 2 == 0);
    const Buffer recv(in.elements * unit, number % 3 == 0);
    for (std::size_t r = 0; r < out.counts.size(); ++r) {
      char* block = send.data() + out.displs[r] * unit;
      for (std::size_t i = 0; i < out.counts[r]; ++i) {
        store(block, i, type, moved_value(number, self.rank, i + r));
      }
    }
    self.ends(pithAlltoAllV(send.data(), out.counts.data(), out.argument, recv.data(),
                            in.counts.data(), in.argument, type, comm, self.stream()));
    for (int rank = 0; rank < self.size; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const char* block = recv.data() + in.displs[r] * unit;
      for (std::size_t i = 0; i < in.counts[r]; ++i) {
        ensure(holds(block, i, type, moved_value(number, rank, i + me)), "a wrong element");
      }
    }
  }
}

// The arrays of counts may change once a call of a group has returned.
void in_groups_on(Rank& self, pithComm_t comm) {
  const auto size = static_cast<std::size_t>(self.size);
  const auto me = static_cast<std::size_t>(self.rank);
  const std::size_t all_ranks = size * (size + 1) / 2;  // the sum of what each one gives
  for (int round = 0; round < 20; ++round) {
    const Buffer send(size * 64 * sizeof(float), round % 2 == 0);
    const Buffer gathered(size * 64 * sizeof(float), false);
    const Buffer summed(64 * sizeof(float), false);
    const Buffer swapped(size * 64 * sizeof(float), false);
    for (std::size_t i = 0; i < size * 64; ++i) send.as<float>()[i] = static_cast<float>(me + 1);
    Sizes counts(size);
    for (std::size_t r = 0; r < size; ++r) counts[r] = 3 * r + static_cast<std::size_t>(round);
    Sizes equal(size, 5);
    ok(pithGroupStart());
    ok(pithAllGatherV(send.data(), gathered.data(), counts.data(), nullptr, pithFloat32, comm,
                      self.stream()));
    ok(pithReduceScatterV(send.data(), summed.data(), counts.data(), pithFloat32, pithSum, comm,
                          self.stream()));
    ok(pithAlltoAllV(send.data(), equal.data(), nullptr, swapped.data(), equal.data(), nullptr,
                     pithFloat32, comm, self.stream()));
    const Sizes given = counts;
    counts.assign(size, std::size_t{1} << 40);
    equal = counts;
    if (round % 2 == 0 || self.stream()) {
      self.ends(pithGroupEnd());
    } else {
      pithRequest_t request = nullptr;
      ok(pithGroupEndAsync(&request));
      ok(pithWait(request));
    }
    std::size_t at = 0;
    for (std::size_t r = 0; r < size; ++r) {
      for (std::size_t i = 0; i < given[r]; ++i, ++at) {
        ensure(gathered.as<float>()[at] == static_cast<float>(r + 1), "a wrong element");
      }
      ensure(swapped.as<float>()[5 * r + 4] == static_cast<float>(r + 1), "a wrong exchange");
    }
    for (std::size_t i = 0; i < given[me]; ++i) {
      ensure(summed.as<float>()[i] == static_cast<float>(all_ranks), "a wrong sum");
    }
  }
}

// Blocks that leave from one half of a buffer and come to the other.
void in_one_buffer_on(Rank& self, pithComm_t comm) {
  const auto size = static_cast<std::size_t>(self.size);
  const auto me = static_cast<std::size_t>(self.rank);
  const Buffer both(2 * size * sizeof(float), true);
  const Sizes counts(size, 1);
  Sizes from(size);
  Sizes to(size);
  for (std::size_t r = 0; r < size; ++r) {
    from[r] = size - 1 - r;
    to[r] = size + r;
    both.as<float>()[from[r]] = static_cast<float>(100 * me + r);
  }
  self.ends(pithAlltoAllV(both.data(), counts.data(), from.data(), both.data(), counts.data(),
                          to.data(), pithFloat32, comm, self.stream()));
  for (std::size_t r = 0; r < size; ++r) {
    ensure(both.as<float>()[size + r] == static_cast<float>(100 * r + me), "a wrong element");
  }
}

unsigned half_value(std::size_t i) { return 1 + static_cast<unsigned>(i % 8); }

// Means of halves, whose sum would overflow, and sums by factors: both scale their inputs first.
void scaled_on(Rank& self, pithComm_t comm) {
  const auto size = static_cast<std::size_t>(self.size);
  Sizes counts(size, 0);
  counts[0] = 150'001;
  counts[size - 1] += 7;
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t own = counts[static_cast<std::size_t>(self.rank)];
  const Buffer send(all * 2, false);
  const Buffer recv(own * 2, false);
  for (std::size_t i = 0; i < all; ++i) store(send.data(), i, pithFloat16, half_value(i));
  self.ends(pithReduceScatterV(send.data(), recv.data(), counts.data(), pithFloat16, pithAvg, comm,
                               self.stream()));
  const std::size_t begin = self.rank == 0 ? 0 : all - own;
  for (std::size_t i = 0; i < own; ++i) {
    ensure(holds(recv.data(), i, pithFloat16, half_value(begin + i)), "a wrong mean");
  }
  float half = 0.5F;
  pithRedOp_t op = pithSum;
  ok(pithRedOpCreatePreMulSum(&op, &half, pithFloat32, pithScalarHostImmediate, comm));
  const Buffer floats(all * 4, true);
  const Buffer sums(own * 4, true);
  for (std::size_t i = 0; i < all; ++i) floats.as<float>()[i] = static_cast<float>(i);
  self.ends(pithReduceScatterV(floats.data(), sums.data(), counts.data(), pithFloat32, op, comm,
                               self.stream()));
  for (std::size_t i = 0; i < own; ++i) {
    const float expected = static_cast<float>(begin + i) * 0.5F * static_cast<float>(size);
    ensure(std::abs(sums.as<float>()[i] - expected) <= 1e-6F * expected, "a wrong scaled sum");
  }
  ok(pithRedOpDestroy(op, comm));
}

void gathers(Rank& self) { gathers_on(self, Comm(self.join())); }
void reduces(Rank& self) { reduces_on(self, Comm(self.join())); }
void exchanges(Rank& self) {
  const Comm comm(self.join());
  exchanges_on(self, comm);
  in_one_buffer_on(self, comm);
}
void in_groups(Rank& self) { in_groups_on(self, Comm(self.join())); }
void scaled(Rank& self) { scaled_on(self, Comm(self.join())); }

void all_of_them(Rank& self) {
  const Comm comm(self.join());
  gathers_on(self, comm);
  reduces_on(self, comm);
  exchanges_on(self, comm);
  in_groups_on(self, comm);
  scaled_on(self, comm);
}

}  // namespace

TEST_CASE("allgather of blocks of different sizes", "[moves][uneven]") {
  everywhere(1, 4, gathers);
}
TEST_CASE("reduce-scatter of blocks of different sizes", "[moves][uneven]") {
  everywhere(1, 4, reduces);
}
TEST_CASE("alltoall of blocks of different sizes", "[moves][uneven]") {
  everywhere(1, 4, exchanges);
}
TEST_CASE("groups with blocks of different sizes", "[moves][uneven]") {
  everywhere(1, 3, in_groups);
}
TEST_CASE("scaled sums of blocks of different sizes", "[moves][uneven]") {
  everywhere(1, 4, scaled);
}

TEST_CASE("blocks of different sizes by algorithms that are asked for", "[moves][uneven]") {
  const std::vector<Setup> links = every_link();
  std::size_t link = 0;
  for (const char* algorithms : {"allgather:ring,reduce_scatter:ring,alltoall:pairwise",
                                 "allgather:bruck,reduce_scatter:recursive_halving",
                                 "allgather:views,reduce_scatter:views,alltoall:views"}) {
    Setup setup = links[link++ % links.size()];
    setup.environment = {{"PITH_ALGO", algorithms}, {"PITH_CHUNK", "4096"}};
    INFO(name_of(setup) << ", " << algorithms);
    CHECK(run(3, setup, all_of_them) == "");
  }
}
