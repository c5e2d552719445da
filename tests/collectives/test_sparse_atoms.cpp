// The exchange of drawn atoms by itself: their order, messages in pieces, numbers that nobody can
// have drawn. What schemes must do with them: test_schemes.cpp.
#include "collectives/sparse/factors/gathered_atoms.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

const std::vector<FactorShape> shapes = {{5, 7, 1}, {40, 3, 2}};

// Numbers that tell the rank and their place.
AtomList atoms_of(int rank, const std::vector<std::uint32_t>& counts) {
  AtomList list;
  list.counts = counts;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    const std::size_t numbers = counts[m] * (shapes[m].rows + shapes[m].columns);
    for (std::size_t i = 0; i < numbers; ++i) {
      list.numbers.push_back(float(1000 * rank + 10000 * int(m) + int(i)));
    }
  }
  return list;
}

struct Gathering {
  explicit Gathering(int ranks)
      : world(world_of(one_tensor("atomo", ranks, 1))), traffic(std::size_t(ranks)) {
    atoms.resize(std::size_t(ranks));
  }
  // Rank by rank.
  std::vector<Error> run(const std::vector<std::vector<std::uint32_t>>& counts) {
    return run_ranks(world, [&](Call& call, int r) {
      const auto at = std::size_t(r);
      atoms[at] = std::make_unique<GatheredAtoms>(call, shapes, atoms_of(r, counts[at]));
      args[at].traffic = &traffic[at];
      args[at].chunk_bytes = 1;  // messages of 64 bytes
      return gather_atoms(call, args[at], *atoms[at]);
    });
  }

  World world;
  std::vector<Traffic> traffic;
  std::vector<SparseCall> args = std::vector<SparseCall>(traffic.size());
  std::vector<std::unique_ptr<GatheredAtoms>> atoms;
};

}  // namespace

TEST_CASE("atoms come to all ranks, in rank order", "[sparse][atoms]") {
  const std::vector<std::vector<std::uint32_t>> counts = {{1, 3}, {0, 0}, {2, 0}, {3, 2}};
  const int ranks = 4;
  Gathering gathering(ranks);
  for (const Error& error : gathering.run(counts)) REQUIRE_FALSE(error);
  for (int r = 0; r < ranks; ++r) {
    for (std::size_t m = 0; m < shapes.size(); ++m) {
      const auto [rows, columns, rank] = shapes[m];
      const GatheredAtoms::Factors found = gathering.atoms[std::size_t(r)]->next();
      CHECK(found.shape.rank == (m == 0 ? 6 : 5));
      std::size_t k = 0;
      for (int from = 0; from < ranks; ++from) {
        const AtomList list = atoms_of(from, counts[std::size_t(from)]);
        std::size_t begin = 0;
        if (m == 1) begin = list.counts[0] * (shapes[0].rows + shapes[0].columns);
        for (std::size_t a = 0; a < list.counts[m]; ++a, ++k) {
          const float* const left = list.numbers.data() + begin + a * rows;
          const float* const right =
              list.numbers.data() + begin + list.counts[m] * rows + a * columns;
          for (std::size_t i = 0; i < rows; ++i) {
            CHECK(found.left[i * found.shape.rank + k] == left[i]);
          }
          CHECK(std::equal(right, right + columns, found.right + k * columns));
        }
      }
    }
  }
  CHECK(gathering.world.leaks() == "");
}

TEST_CASE("atoms that no rank can have drawn are refused", "[sparse][atoms]") {
  for (const auto& [first, second] :
       {std::pair<std::uint32_t, std::uint32_t>{6, 0}, {0, 4}, {~0u, ~0u}}) {
    Gathering gathering(2);
    const std::vector<Error> errors = run_ranks(gathering.world, [&](Call& call, int r) {
      const auto at = std::size_t(r);
      gathering.atoms[at] = std::make_unique<GatheredAtoms>(call, shapes, atoms_of(r, {1, 1}));
      if (r == 1) {
        gathering.atoms[at]->counts_of(1)[0] = first;
        gathering.atoms[at]->counts_of(1)[1] = second;
      }
      gathering.args[at].traffic = &gathering.traffic[at];
      gathering.args[at].chunk_bytes = 1024;
      return gather_atoms(call, gathering.args[at], *gathering.atoms[at]);
    });
    const std::string message = errors[0].message();
    CHECK(message == "rank 1 sent more atoms than a rank draws");
    CHECK(errors[1]);
  }
}

}  // namespace pith::test
