// Low-rank factors: SIMD beside the scalar twins. Products have the same bits; projections, whose
// sums may take any order, differ by rounding.
#include "kernels/low_rank/factors.hpp"

#include "sparse_support.hpp"

using namespace pith;
using namespace pith::kernels;
using namespace pith::kernels::test;

namespace {

using ByteVector = std::vector<std::byte>;
using Floats = std::vector<float>;

// Runs `body` for matrices of all kinds of shapes, on every SIMD target.
template <class Body>
void for_each_shape(Body body) {
  for_each_target([&] {
    for (const std::size_t rows : {1, 2, 3, 4, 5, 17}) {
      for (const std::size_t columns : {1, 15, 16, 17, 100, 1024, 2050}) {
        for (const std::size_t rank : {1, 2, 3, 4, 5, 8, 11}) {
          INFO("rows " << rows << " columns " << columns << " rank " << rank);
          body(FactorShape{rows, columns, rank});
        }
      }
    }
  });
}

Floats matrix_of(const FactorShape& shape, unsigned seed = 1) {
  return floats_of(Kind::normal, shape.rows * shape.columns, seed);
}
Floats left_of(const FactorShape& shape) {
  return floats_of(Kind::normal, shape.rows * shape.rank, 2);
}
Floats right_of(const FactorShape& shape) {
  return floats_of(Kind::normal, shape.rank * shape.columns, 3);
}

// Of sums of `terms` products of normal numbers.
bool about(const Floats& a, const Floats& b, std::size_t terms) {
  const float allowed = 1e-5f * std::sqrt(static_cast<float>(terms));
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](float x, float y) { return std::fabs(x - y) <= allowed; });
}

}  // namespace

TEST_CASE("a matrix is projected on both sides") {
  for_each_shape([](const FactorShape& shape) {
    const Floats matrix = matrix_of(shape);
    const Floats right = right_of(shape);
    Floats plain(shape.rows * shape.rank, -1.0f), fast = plain;
    scalar::project({shape, matrix.data(), right.data(), plain.data()});
    project({shape, matrix.data(), right.data(), fast.data()});
    REQUIRE(about(plain, fast, shape.columns));

    const Floats left = left_of(shape);
    Floats plain_right = right, fast_right = right;
    for (const bool fresh : {false, true, false}) {
      scalar::back_project({shape, matrix.data(), left.data(), plain_right.data(), fresh});
      back_project({shape, matrix.data(), left.data(), fast_right.data(), fresh});
      REQUIRE(about(plain_right, fast_right, 2 * shape.rows));
    }
  });
}

TEST_CASE("products of factors have the same bits on every target") {
  for_each_shape([](const FactorShape& shape) {
    const Floats left = left_of(shape);
    const Floats right = right_of(shape);
    Floats plain = matrix_of(shape), fast = plain;
    scalar::add_product({shape, left.data(), right.data(), -0.3f, plain.data()});
    add_product({shape, left.data(), right.data(), -0.3f, fast.data()});
    REQUIRE(same(plain, fast));
    const std::size_t count = shape.rows * shape.columns;
    for (const DType type : value_types) {
      for (const float divisor : {1.0f, 3.0f}) {
        constexpr std::size_t shift = 1;
        ByteVector plain_out(shift + count * size_of(type)), fast_out = plain_out;
        scalar::put_product(
            {shape, left.data(), right.data(), divisor, plain_out.data() + shift, type});
        put_product({shape, left.data(), right.data(), divisor, fast_out.data() + shift, type});
        REQUIRE(first_difference(plain_out, fast_out) == -1);
      }
    }
  });
}

TEST_CASE("a product keeps infinities and NaNs where they are") {
  for_each_target([] {
    const FactorShape shape{2, 40, 4};
    for (const Kind kind : {Kind::nonfinite, Kind::specials}) {
      const Floats left = floats_of(kind, shape.rows * shape.rank, 5);
      const Floats right = floats_of(kind, shape.rank * shape.columns, 6);
      Floats plain = matrix_of(shape), fast = plain;
      scalar::add_product({shape, left.data(), right.data(), 1, plain.data()});
      add_product({shape, left.data(), right.data(), 1, fast.data()});
      REQUIRE(same(plain, fast));
    }
  });
}
