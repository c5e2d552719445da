// The bodies of the dense kernels, run block after block, against the plain twins of the host
// kernels: bit for bit.
#include <fmt/format.h>

#include <memory>

#include "kernels/cast.hpp"
#include "kernels/reduce.hpp"
#include "kernels/scalar.hpp"
#include "tests/cuda/kernel_support.hpp"

using namespace pith;
using namespace pith::kernels::test;
using namespace pith::cuda::test;
using cuda::CastArgs;
using cuda::MapArgs;
using cuda::ReduceArgs;
using pith::DType;
using pith::Op;
namespace scalar = pith::kernels::scalar;

namespace {

Bytes copy_of(const std::byte* data, std::size_t bytes) { return Bytes(data, data + bytes); }

constexpr std::size_t counts[] = {0, 1, 3, 15, 16, 17, 1000, 20000};

}  // namespace

TEST_CASE("decode is exact for every code") {
  for (unsigned code = 0; code < 65536; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const auto same = [](float a, float b) {
      return cuda::bits_as<std::uint32_t>(a) == cuda::bits_as<std::uint32_t>(b);
    };
    REQUIRE(same(cuda::decode(cuda::Half{bits}), scalar::decode<kernels::Float16>(bits)));
    REQUIRE(same(cuda::decode(cuda::Bfloat{bits}), scalar::decode<kernels::Bfloat16>(bits)));
    if (code > 255) continue;
    const auto byte = static_cast<std::uint8_t>(code);
    REQUIRE(same(cuda::decode(cuda::F8e4m3{byte}), scalar::decode<kernels::Float8e4m3>(byte)));
    REQUIRE(same(cuda::decode(cuda::F8e5m2{byte}), scalar::decode<kernels::Float8e5m2>(byte)));
  }
}

namespace {

template <class Ours, class Theirs, class Real>
bool encodes_alike(Real value) {
  return cuda::encode<Ours>(value).bits == scalar::encode<Theirs>(static_cast<double>(value));
}
template <class Real>
bool encodes_alike(Real value) {
  return encodes_alike<cuda::Half, kernels::Float16>(value) &&
         encodes_alike<cuda::Bfloat, kernels::Bfloat16>(value) &&
         encodes_alike<cuda::F8e4m3, kernels::Float8e4m3>(value) &&
         encodes_alike<cuda::F8e5m2, kernels::Float8e5m2>(value);
}

}  // namespace

TEST_CASE("encode rounds once, from float32 and float64") {
  // Each code of 16 bits, the middle to the next, and the neighbours of both.
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      REQUIRE(encodes_alike(cuda::bits_as<float>(high << 16 | low)));
    }
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 300000; ++i) {
    const std::uint64_t bits = random();
    REQUIRE(encodes_alike(cuda::bits_as<float>(static_cast<std::uint32_t>(bits))));
    REQUIRE(encodes_alike(cuda::bits_as<double>(bits)));
    // Doubles in the range of the narrow types, close to where they round.
    const double near =
        static_cast<double>(cuda::decode(cuda::Half{static_cast<std::uint16_t>(bits)}));
    const double step = std::ldexp(1.0, -static_cast<int>(bits % 60));
    if (near == near) REQUIRE(encodes_alike(near * (1 + step)));
  }
}

namespace {

// Averages add.
bool has_kernel(DType type, Op op) {
  if (is_complex(type)) return op == Op::prod;  // sums are those of reals
  return op != Op::avg && is_defined(op, type);
}

// Both signs share the kernels of bits and truth values.
std::string reduce_name(DType type, Op op) {
  const bool of_bits = op >= Op::band;
  const std::string of = of_bits ? fmt::format("b{}", 8 * size_of(type)) : short_name(type);
  return fmt::format("reduce_{}_{}", of, name_of(op));
}

}  // namespace

TEST_CASE("reduce kernels have the bits of the host's") {
  const unsigned blocks = GENERATE(1u, 3u);
  for (const DType type : all_types) {
    const std::size_t size = size_of(type);
    for (const Op op : all_ops) {
      if (!has_kernel(type, op)) continue;
      const std::string name = reduce_name(type, op);
      for (const std::size_t count : counts) {
        if (count > 1000 && op != Op::sum) continue;
        // Congruent, not congruent, and not even aligned to elements.
        for (const auto& [at_a, at_b, at_out] :
             {std::array{0, 0, 0}, {1, 1, 1}, {0, 1, 3}, {3, 0, 0}}) {
          const std::size_t odd = at_a == 3 && size > 1 ? 1 : 0;
          const Bytes a = random_elements(type, count, 0, 1);
          const Bytes b = random_elements(type, count, 0, 2);
          Buffer in_a(a, static_cast<std::size_t>(at_a) * size + odd);
          Buffer in_b(b, static_cast<std::size_t>(at_b) * size);
          Buffer out(Bytes(count * size + 64), static_cast<std::size_t>(at_out) * size);
          Buffer second(Bytes(count * size + 64), static_cast<std::size_t>(at_out) * size);
          Bytes expected(count * size);
          scalar::reduce(expected.data(), a.data(), b.data(), count, type, op);
          INFO(name << " of " << count << " on " << blocks << " blocks, at " << at_a << at_b
                    << at_out);
          ReduceArgs args{count, 2, 2, 0, {in_a.data, in_b.data}, {out.data, second.data}};
          kernel(name)(&args, blocks);
          REQUIRE(first_difference(copy_of(out.data, count * size), expected) == -1);
          REQUIRE(first_difference(copy_of(second.data, count * size), expected) == -1);
          REQUIRE(first_difference(copy_of(out.data + count * size, 64), Bytes(64)) == -1);
          args.out[0] = in_a.data;  // in place
          args.outputs = 1;
          kernel(name)(&args, blocks);
          REQUIRE(first_difference(copy_of(in_a.data, count * size), expected) == -1);
        }
      }
    }
  }
}

namespace {

// Vectors of ranks and what a left fold of them gives.
struct Fold {
  Fold(DType type, Op op, std::size_t inputs, std::size_t count, float divisor)
      : expected(count * size_of(type)) {
    std::vector<const std::byte*> in;
    for (std::size_t k = 0; k < inputs; ++k) {
      vectors.push_back(random_elements(type, count, 0, static_cast<unsigned>(k + 1)));
    }
    for (const Bytes& vector : vectors) in.push_back(vector.data());
    scalar::reduce_many(expected.data(), in.data(), static_cast<int>(inputs), count, type, op);
    if (divisor != 0) scalar::finish_avg(expected.data(), count, type, divisor);
  }
  std::vector<Bytes> vectors;
  Bytes expected;
};

// Input k lies `apart * k` bytes off an address of the device's, the outputs at it, or over the
// last inputs, or where packs of one are none of the other.
enum class Where { beside, in_place, crooked };

std::string reduce_many(const Fold& fold, RunnableKernel kernel, std::size_t count, float divisor,
                        std::size_t apart, Where where) {
  const std::size_t inputs = fold.vectors.size();
  constexpr std::size_t outputs = 2;
  std::vector<std::unique_ptr<Buffer>> in;
  for (std::size_t k = 0; k < inputs; ++k) {
    const std::size_t offset = where == Where::beside ? k * apart % 64 : apart;
    in.push_back(std::make_unique<Buffer>(fold.vectors[k], offset));
  }
  Buffer first(fold.expected, 0), second(fold.expected, where == Where::crooked ? 8 : 0);
  std::byte* out[outputs] = {first.data, second.data};
  for (std::byte* data : out) std::fill_n(data, fold.expected.size(), std::byte{1});
  ReduceArgs args{count, static_cast<std::uint32_t>(inputs), outputs, divisor, {}, {}};
  for (std::size_t k = 0; k < inputs; ++k) args.in[k] = in[k]->data;
  for (std::size_t o = 0; o < outputs; ++o) {
    if (where == Where::in_place) out[o] = in[inputs - 1 - o % inputs]->data;
    args.out[o] = out[o];
  }
  kernel(&args, 2);
  for (const std::byte* data : out) {
    if (first_difference(copy_of(data, fold.expected.size()), fold.expected) != -1) return "bits";
  }
  return "";
}

}  // namespace

TEST_CASE("reduce kernels fold many inputs from the left, into many outputs") {
  for (const DType type : all_types) {
    for (const Op op : all_ops) {
      if (!has_kernel(type, op)) continue;
      const RunnableKernel of = kernel(reduce_name(type, op));
      for (const std::size_t inputs : {1, 2, 3, 4, 9, 10, 32}) {
        for (const std::size_t count : {1, 7, 200, 5000}) {
          if (count > 200 && inputs > 4) continue;
          const float divisor = op == Op::sum && count != 7 ? 3.0f : 0.0f;
          const Fold fold(type, op, inputs, count, divisor);
          INFO(short_name(type) << " " << name_of(op) << ", " << inputs << " of " << count);
          for (const Where where : {Where::beside, Where::in_place, Where::crooked}) {
            for (const std::size_t apart : {std::size_t{0}, size_of(type), std::size_t{1}}) {
              INFO(apart << " apart, " << static_cast<int>(where));
              REQUIRE(reduce_many(fold, of, count, divisor, apart, where) == "");
            }
          }
        }
      }
    }
  }
}

TEST_CASE("two words are joined at any byte") {
  std::array<std::uint8_t, 32> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(3 * i + 1);
  cuda::FourWords low, high;
  std::memcpy(&low, bytes.data(), sizeof low);
  std::memcpy(&high, bytes.data() + 16, sizeof high);
  for (unsigned shift = 1; shift < 16; ++shift) {
    const cuda::FourWords joined = cuda::join(low, high, shift);
    INFO("shift " << shift);
    REQUIRE(std::memcmp(&joined, bytes.data() + shift, sizeof joined) == 0);
  }
}

// Only addresses are looked at.
TEST_CASE("words that packs are read from lie within their arrays") {
  const auto at = [](std::size_t address) { return reinterpret_cast<std::byte*>(address); };
  for (std::size_t from = 4096; from < 4112; ++from) {
    for (std::size_t to = 8192; to < 8208; ++to) {
      for (std::size_t bytes = 0; bytes < 130; ++bytes) {
        const std::byte* const in = at(from);
        std::byte* const out = at(to);
        const cuda::Packs range = cuda::packs_of<std::uint8_t>(&in, 1, &out, 1, bytes);
        const std::size_t end = range.head + 16 * range.packs;
        REQUIRE(end <= bytes);
        if (range.packs == 0) {
          REQUIRE(bytes < 64);
          continue;
        }
        REQUIRE((to + range.head) % 16 == 0);
        REQUIRE((from + range.head) / 16 * 16 >= from);
        REQUIRE((from + end + 15) / 16 * 16 <= from + bytes);
        REQUIRE(range.head + bytes - end < 64);
      }
    }
  }
}

TEST_CASE("cast kernels have the bits of the host's") {
  for (const DType from : all_types) {
    for (const DType to : all_types) {
      if (!is_real_float(from) || !is_real_float(to)) continue;
      const std::string name = fmt::format("cast_{}_{}", short_name(from), short_name(to));
      for (const std::size_t count : counts) {
        for (const auto& [at_in, at_out] : {std::array{0, 0}, {1, 1}, {1, 0}}) {
          INFO(name << " of " << count << " at " << at_in << at_out);
          const Bytes in = random_elements(from, count, 0, 6);
          Bytes expected(count * size_of(to));
          scalar::cast(expected.data(), to, in.data(), from, count);
          Buffer source(in, static_cast<std::size_t>(at_in) * size_of(from));
          Buffer out(Bytes(expected.size()), static_cast<std::size_t>(at_out) * size_of(to));
          const CastArgs args{out.data, source.data, count};
          kernel(name)(&args, 2);
          REQUIRE(first_difference(copy_of(out.data, expected.size()), expected) == -1);
        }
      }
    }
  }
}

TEST_CASE("the copy kernel copies between any two addresses") {
  const RunnableKernel copy = kernel("copy");
  std::vector<std::size_t> lengths{20000};
  for (std::size_t bytes = 0; bytes <= 100; ++bytes) lengths.push_back(bytes);
  for (const std::size_t bytes : lengths) {
    const Bytes data = random_elements(DType::u8, bytes, 0, 7);
    for (std::size_t from = 0; from < 16; ++from) {
      Buffer in(data, from);
      for (std::size_t to = 0; to < 16; ++to) {
        Buffer out(Bytes(bytes + 16), to);
        const MapArgs args{out.data, in.data, bytes, {}, nullptr, 0};
        copy(&args, 2);
        INFO(bytes << " bytes from " << from << " to " << to);
        REQUIRE(std::equal(data.begin(), data.end(), out.data));
        REQUIRE(first_difference(copy_of(out.data + bytes, 16), Bytes(16)) == -1);
        REQUIRE(std::all_of(out.data - to, out.data, [](std::byte b) { return b == std::byte{}; }));
      }
    }
  }
}
