// Momentum and draws on a device beside the plain twins of the host's kernels, bit for bit but for
// sums of squares.
#include "kernels/elections/elections.hpp"

#include "tests/cuda/device_runner.hpp"

using namespace pith;
using namespace pith::kernels::test;
namespace scalar = pith::kernels::scalar;
using pith::cuda::test::OnHeap;
using pith::cuda::test::Runner;
using Floats = std::vector<float>;
using Indices = std::vector<std::uint32_t>;

TEST_CASE("velocities take momentum and gradient on a device as on the host") {
  Runner runner;
  for (const DType type : value_types) {
    for (const Kind kind : all_kinds) {
      for (const std::size_t count : {0, 1, 255, 5000}) {
        for (const bool given : {true, false}) {
          const std::size_t at = count % 3;
          Floats plain = floats_of(kind, count, 1), fast = plain;
          const auto gradient = as_type(floats_of(kind, count, 2), type, at);
          const std::byte* const from = given ? gradient.data() + at : nullptr;
          scalar::correct_momentum({plain.data(), from, type, count, 0.9f, 0.5f});
          runner.run<MomentumKernel>({fast.data(), from, type, count, 0.9f, 0.5f});
          CAPTURE(int(kind), count, given);
          INFO(name_of(type));
          REQUIRE(same(plain, fast));
        }
      }
    }
  }
}

TEST_CASE("draws on a device are the host's") {
  Runner runner;
  struct Drawn {
    Floats accumulator;
    Indices indices;
    Floats values;
    OnHeap<PassResult> result = {{77, 77, 77}};
  };
  for (const std::size_t count : {0, 1, 5, 4095, 4097, 20000}) {
    for (const std::size_t at : {0, 1, 3}) {  // elements that the accumulator misses 16 bytes by
      for (const float sure : {0.01f, 3.0f, 100.0f}) {
        Drawn plain{floats_of(Kind::normal, count + at, 3), Indices(count), Floats(count)};
        Drawn fast = plain;
        const auto args = [&](Drawn& drawn) {
          return DrawKernel::Args{drawn.accumulator.data() + at,
                                  count,
                                  sure,
                                  0x123456789abcdefULL,
                                  1000,
                                  drawn.indices.data(),
                                  drawn.values.data(),
                                  &drawn.result[0]};
        };
        scalar::draw(args(plain));
        runner.run<DrawKernel>(args(fast));
        CAPTURE(count, at, sure, plain.result[0].selected, fast.result[0].selected);
        REQUIRE(plain.result[0].selected == fast.result[0].selected);
        REQUIRE(plain.indices == fast.indices);
        REQUIRE(same(plain.values, fast.values));
        REQUIRE(same(plain.accumulator, fast.accumulator));
        REQUIRE(fast.result[0].nonfinite == 0);
        REQUIRE(close(plain.result[0].squares, fast.result[0].squares));
      }
    }
  }
}
