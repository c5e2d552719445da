// Products of matrices with low-rank factors on a device beside the plain twins of the host's
// kernels. Projections, whose sums may take any order, differ by rounding.
#include "kernels/low_rank/factors.hpp"

#include "tests/cuda/device_runner.hpp"

using namespace pith;
using namespace pith::kernels::test;
namespace scalar = pith::kernels::scalar;
using pith::cuda::test::Runner;
using ByteVector = std::vector<std::byte>;
using Floats = std::vector<float>;

TEST_CASE("matrices meet factors on a device as on the host") {
  Runner runner;
  const auto about = [](const Floats& a, const Floats& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](float x, float y) { return std::fabs(x - y) < 1e-3f; });
  };
  for (const auto& [rows, columns] : {std::pair{1, 1}, {3, 100}, {70, 33}, {20, 700}}) {
    for (const int rank : {1, 3, 4, 6}) {
      CAPTURE(rows, columns, rank);
      const FactorShape shape{static_cast<std::size_t>(rows), static_cast<std::size_t>(columns),
                              static_cast<std::size_t>(rank)};
      const std::size_t count = shape.rows * shape.columns;
      const Floats matrix = floats_of(Kind::normal, count, 1);
      const Floats left = floats_of(Kind::normal, shape.rows * shape.rank, 2);
      const Floats right = floats_of(Kind::normal, shape.rank * shape.columns, 3);
      Floats plain = left, fast = left;
      scalar::project({shape, matrix.data(), right.data(), plain.data()});
      runner.run<ProjectKernel>({shape, matrix.data(), right.data(), fast.data()});
      REQUIRE(about(plain, fast));
      plain = fast = right;
      for (const bool fresh : {false, true, false}) {
        scalar::back_project({shape, matrix.data(), left.data(), plain.data(), fresh});
        runner.run<BackProjectKernel>({shape, matrix.data(), left.data(), fast.data(), fresh});
        REQUIRE(about(plain, fast));
      }
      plain = fast = matrix;
      scalar::add_product({shape, left.data(), right.data(), -0.3f, plain.data()});
      runner.run<AddProductKernel>({shape, left.data(), right.data(), -0.3f, fast.data()});
      REQUIRE(same(plain, fast));
      for (const DType type : value_types) {
        ByteVector plain_out(count * size_of(type)), fast_out = plain_out;
        scalar::put_product({shape, left.data(), right.data(), 3, plain_out.data(), type});
        runner.run<PutProductKernel>({shape, left.data(), right.data(), 3, fast_out.data(), type});
        REQUIRE(same_values(plain_out, fast_out, type));
      }
    }
  }
}
