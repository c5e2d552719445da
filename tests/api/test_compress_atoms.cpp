// Singular values drawn through the C API: stated matrices of few directions arrive whole.
#include <cmath>
#include <vector>

#include "catch.hpp"
#include "compressed.hpp"

using namespace ranks;

namespace {

constexpr std::size_t rows = 60;
constexpr std::size_t columns = 50;
constexpr std::size_t bias = 17;
constexpr std::size_t all = rows * columns + bias;

// Two directions and a bias.
std::vector<float> gradient_of(int rank, int step) {
  std::vector<float> out(all, static_cast<float>(rank + step));
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      const auto a = static_cast<float>(i % 7) - static_cast<float>(rank);
      const auto b = static_cast<float>((j + static_cast<std::size_t>(step)) % 5) - 1;
      out[i * columns + j] = a * b + 0.25F;
    }
  }
  return out;
}

std::vector<float> summed(Rank& self, pithCompressor_t compressor, pithComm_t comm, int step) {
  const std::vector<float> send = gradient_of(self.rank, step);
  std::vector<float> recv(all);
  ok(pithAllReduceCompressed(send.data(), recv.data(), all, pithFloat32, pithSum, compressor, comm,
                             nullptr));
  return recv;
}

double error_of(const std::vector<float>& found, int ranks, int step) {
  double most = 0;
  for (std::size_t i = 0; i < all; ++i) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += double(gradient_of(r, step)[i]);
    most = std::max(most, std::fabs(double(found[i]) - sum));
  }
  return most;
}

void state_shape(pithCompressor_t compressor) {
  const std::size_t heights[] = {rows, 1};
  const std::size_t widths[] = {columns, bias};
  ok(pithCompressorSetShape(compressor, heights, widths, 2));
}

}  // namespace

TEST_CASE("matrices of few directions arrive whole", "[compress]") {
  for (const int ranks : {1, 3}) {
    CHECK(run(ranks, {}, [&](Rank& self) {
            const Comm comm(self.join());
            const Compressor compressor("atomo");
            state_shape(compressor);
            for (int step = 0; step < 3; ++step) {
              const std::vector<float> sum = summed(self, compressor, comm, step);
              ensure(error_of(sum, ranks, step) < 1e-4, "the sum is another");
            }
            const std::vector<float> kept = residual_of(compressor, all);
            for (const float value : kept) ensure(value == 0, "something is kept");
          }) == "");
  }
}

TEST_CASE("draws differ from step to step, and go on after a restart", "[compress]") {
  CHECK(run(2, {}, [](Rank& self) {
          const Comm comm(self.join());
          const Compressor compressor("atomo:rank=1");
          const Compressor other("atomo:rank=1,seed=1");
          state_shape(compressor);
          state_shape(other);
          const std::vector<float> first = summed(self, compressor, comm, 0);
          ensure(error_of(first, 2, 0) > 0.01, "the sum is whole");
          bool steps_differ = false;
          bool seeds_differ = !same_bits(summed(self, other, comm, 0), first);
          for (int i = 0; i < 8; ++i) {
            const std::vector<float> next = summed(self, compressor, comm, 0);
            steps_differ = steps_differ || !same_bits(next, first);
            seeds_differ = seeds_differ || !same_bits(summed(self, other, comm, 0), next);
          }
          ensure(steps_differ, "every step has the same draw");
          ensure(seeds_differ, "seeds have the same draws");
          const std::vector<char> state = saved(compressor);
          const Compressor loaded("atomo:rank=1");
          ok(pithCompressorLoad(loaded, state.data(), state.size()));
          for (int step = 0; step < 4; ++step) {
            const std::vector<float> expected = summed(self, compressor, comm, step);
            ensure(same_bits(summed(self, loaded, comm, step), expected), "another draw");
          }
        }) == "");
}
