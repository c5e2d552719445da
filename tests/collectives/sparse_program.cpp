#include "tests/collectives/sparse_program.hpp"

#include <cmath>

namespace pith::test {

namespace {

// Of small values. std::round is a call for each.
float nearest_integer(float value) {
  return static_cast<float>(static_cast<int>(value + std::copysign(0.5f, value)));
}

// A sequence from a seed: half of what the tests do is drawing numbers.
class Sequence {
 public:
  explicit Sequence(std::uint64_t seed) : state_(seed) {}
  // The highest bits are the best.
  std::uint64_t next() { return state_ = state_ * 0x5851F42D4C957F2DU + 0x14057B7EF767814FU; }

 private:
  std::uint64_t state_;
};

void draw_one(std::vector<float>& gradient, Sequence sequence, float size, bool integers) {
  for (float& value : gradient) {
    const std::uint64_t bits = sequence.next();
    const float u =
        static_cast<float>(static_cast<std::int64_t>(bits >> 40)) / float(1 << 24) - 0.5f;
    value = (bits >> 34 & 15) == 0 ? 0.0f : u * std::fabs(u) * size;
    if (integers) value = nearest_integer(1000 * value);
  }
}

}  // namespace

void SparseProgram::draw(std::uint64_t step) {
  const float size = 1 + 0.1f * float(step % 3);
  for (int r = 0; r < case_.ranks; ++r) {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      const std::uint64_t seed =
          random_bits(case_.seed + 1000 * step + 100 * t, static_cast<std::uint64_t>(r), 0);
      draw_one(at(r).gradients[t], Sequence(seed), size, case_.integers);
    }
  }
}

// The call sees 16-bit numbers.
void SparseProgram::narrow(Rank& rank, std::size_t t) {
  CompressedTensor& tensor = rank.tensors[t];
  std::byte* const codes = rank.narrow[t].data();
  std::vector<float>& gradient = rank.gradients[t];
  kernels::scalar::cast(codes, case_.type, tensor.send, DType::f32, tensor.count);
  kernels::scalar::cast(reinterpret_cast<std::byte*>(gradient.data()), DType::f32, codes,
                        case_.type, tensor.count);
  tensor.send = codes;
  tensor.recv = case_.in_place ? codes : codes + tensor.count * size_of(case_.type);
}

void SparseProgram::widen(Rank& rank) {
  for (std::size_t t = 0; t < case_.counts.size() && case_.type != DType::f32; ++t) {
    auto& out = case_.in_place ? rank.gradients[t] : rank.results[t];
    kernels::scalar::cast(reinterpret_cast<std::byte*>(out.data()), DType::f32,
                          rank.tensors[t].recv, case_.type, out.size());
  }
}

}  // namespace pith::test
