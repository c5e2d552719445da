// One dense collective call with the memory of all its ranks: random inputs, a plain reference, and
// the checks of the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

struct DenseCase {
  const Algorithm* algorithm = nullptr;
  int ranks = 2;
  std::size_t count = 0;
  DType type = DType::u64;
  Op op = Op::sum;
  bool premultiplied = false;  // every rank by a factor of its own
  int root = 0;
  bool in_place = false;  // where the collective and the rank's role have such a thing
  std::size_t shift = 0;  // the buffers' distance from an aligned address
  Tuning tuning{64, 1};
  std::uint64_t seed = 1;
  std::uint64_t order = 0;      // the seed of the order in which ranks are walked; 0: by rank
  std::vector<int> hosts = {};  // of the ranks; empty: nothing is known of them
};

// Settings of the world that the case has: order and hosts.
void set_places(World& world, const DenseCase& c);
// ", on hosts 0 0 1"; empty for none.
std::string describe_hosts(const std::vector<int>& hosts);

// The operation, or one in its place where the C API refuses it.
constexpr Op possible_op(Collective collective, DType type, Op op) {
  const bool is_refused = !is_defined(op, type) || (scans(collective) && op == Op::avg);
  const int defined = is_complex(type) ? 2 : 4;  // sum and prod, then max and min
  return is_refused && reduces(collective) ? static_cast<Op>(static_cast<int>(op) % defined) : op;
}

// A permutation of so many ranks.
RankOrder random_order(int ranks, std::uint64_t seed);

// By the seed kernels run at once, or late, or late with slots of a few bytes.
inline SimConfig simulator(std::uint64_t seed) {
  SimConfig config;
  config.kernel_s = 1e-7;
  config.gamma_s_per_byte = 1e-9;
  config.late_kernels = seed % 3 != 0;
  if (seed % 3 == 2) config.slot_bytes = 48;
  return config;
}

std::string describe(const DenseCase& c);

// A hash that serves as data: every (seed, rank, index) has its own 64 bits.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t rank, std::uint64_t index) {
  std::uint64_t bits = seed * 0x9E3779B97F4A7C15U + rank * 0xD1342543DE82EF95U + index + 1;
  for (int round = 0; round < 2; ++round) {
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    bits ^= bits >> 31;
  }
  return bits;
}

// Memory of one rank, from the registered heap or not.
struct FreeBuffer {
  bool registered = false;
  void operator()(std::byte* memory) const;
};
struct Buffer {
  std::unique_ptr<std::byte, FreeBuffer> memory;
  std::size_t size = 0;
  std::size_t send = 0;  // offsets
  std::size_t recv = 0;
  bool has_send = true;  // what the rank's role uses
  bool has_recv = true;
};

class DenseProgram final : public Program {
 public:
  // `registered`: whether a rank's buffers lie in the registered heap; nobody's if empty.
  explicit DenseProgram(const DenseCase& dense, const std::function<bool(int)>& registered = {});

  Task<Error> start(Call& call, int rank) override;
  std::span<std::byte> memory(int rank) override {
    Buffer& buffer = buffers_[static_cast<std::size_t>(rank)];
    return {buffer.memory.get(), buffer.size};
  }
  CollectiveArgs args(int rank);
  // What is wrong after a successful call: results, inputs that changed, bytes beside the buffers.
  // Empty is good.
  std::string check() const;
  // Of this rank's results alone: peers may have lost theirs.
  std::string check_result(int rank) const override;

 private:
  std::size_t element() const { return size_of(case_.type); }
  std::size_t block_bytes() const { return case_.count * element(); }
  std::size_t block_of(int rank) const { return static_cast<std::size_t>(rank) * block_bytes(); }
  Extent extent() const { return extent_of(case_.algorithm->collective, case_.ranks); }
  std::size_t send_bytes() const { return block_bytes() * extent().send; }
  std::size_t recv_bytes() const { return block_bytes() * extent().recv; }
  const Buffer& buffer(int rank) const { return buffers_[static_cast<std::size_t>(rank)]; }
  std::vector<std::byte> factor(int rank) const;
  std::vector<std::byte> input(int rank) const;
  std::vector<std::byte> draw_numbers() const;
  // What the rank's input counts as: multiplied by its factor, if it has one.
  std::vector<std::byte> scaled(std::vector<std::byte> bytes, int rank) const;
  const std::byte* recv(int rank) const { return buffer(rank).memory.get() + buffer(rank).recv; }
  void lay_out(int rank, bool registered);
  void lay_out_in_place(Buffer& buffer, int rank) const;
  std::string check_around(int rank, std::span<const std::byte> sent) const;
  std::string check_equal(int rank, std::span<const std::byte> expected) const;
  using Inputs = std::vector<std::vector<std::byte>>;  // by rank
  // `own`: where in the inputs the rank's results come from.
  std::string check_floats(const Inputs& inputs, int rank, std::size_t own) const;
  std::vector<std::byte> reduce_integers(const Inputs& inputs) const;
  std::string check_reduced(Inputs inputs) const;
  std::string check_reduced(const Inputs& inputs, const std::vector<std::byte>& whole,
                            int rank) const;
  std::string check_scanned(Inputs inputs, int rank) const;
  std::vector<std::byte> expected(const Inputs& inputs, int rank) const;

  DenseCase case_;
  std::vector<std::byte> numbers_;  // that inputs are drawn from; none where data are only moved
  std::vector<Buffer> buffers_;
};

// Runs the case in a world of so many ranks; says what went wrong.
std::string run_in(World& world, const DenseCase& c);

// Runs the case in a world of its own; says what went wrong, and prints how to run it again alone:
// `tests` selects its test.
std::string run_case(const DenseCase& c, SimConfig config, const std::string& tests = "[dense]");

}  // namespace pith::test
