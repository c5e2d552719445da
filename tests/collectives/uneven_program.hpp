// One call whose blocks differ in size, with the memory of all its ranks: random inputs, what the
// memory must be afterwards, and the check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

// How long the blocks are, up to UnevenCase::largest.
enum class Sizes : std::uint8_t {
  equal,
  random,
  chunks,      // none, one or two whole chunks
  of_one,      // all have none, but those of one rank; in an alltoall, those for it
  but_of_one,  // and the other way round
};
inline constexpr int sizes_count = 5;

struct UnevenCase {
  const Algorithm* algorithm = nullptr;  // of an allgather, reduce-scatter or alltoall
  int ranks = 2;
  Sizes sizes = Sizes::random;
  std::size_t largest = 0;
  DType type = DType::u64;  // an integer type
  Op op = Op::sum;
  bool premultiplied = false;  // every rank by a factor of its own
  bool in_place = false;       // not of an alltoall
  Tuning tuning{64, 1};
  std::uint64_t seed = 1;
  std::uint64_t order = 0;      // the seed of the order in which ranks are walked; 0: by rank
  std::vector<int> hosts = {};  // of the ranks; empty: nothing is known of them
};

std::string describe(const UnevenCase& c);

class UnevenProgram final : public Program {
 public:
  explicit UnevenProgram(const UnevenCase& uneven);

  Task<Error> start(Call& call, int rank) override;
  std::span<std::byte> memory(int rank) override { return at(rank).memory; }
  std::string check_result(int rank) const override;
  CollectiveArgs args(int rank);
  // From now on this rank expects so many elements more from another one, or, where `more` is
  // negative, fewer: the two disagree.
  void mistake(int rank, int from, int more);
  // Elements of a block.
  std::size_t size(int from, int to) const;

 private:
  struct Side {
    std::size_t begin = 0;      // in the memory
    std::vector<Range> blocks;  // empty: one block
    std::size_t elements = 0;   // from the first to the last
  };
  struct Rank {
    std::vector<std::byte> memory;
    std::vector<std::byte> before;
    std::vector<std::byte> expected;
    Side send;
    Side recv;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  std::size_t element() const { return size_of(case_.type); }
  bool gathers() const { return case_.algorithm->collective == Collective::allgather; }
  bool reduces_blocks() const { return reduces(case_.algorithm->collective); }
  Side lay_out(int rank, bool sends) const;
  void lay_out(int rank);
  std::uint64_t factor(int rank) const;
  void expect(int rank);
  void expect_block(int rank, int from);
  const std::byte* sent(int from, int to) const;
  std::byte* expected_at(int rank, int from);

  UnevenCase case_;
  std::vector<Rank> ranks_;
};

// Runs the case in a world of its own; says what went wrong, and prints how to run it again alone.
std::string run_case(const UnevenCase& c, SimConfig config);

}  // namespace pith::test
