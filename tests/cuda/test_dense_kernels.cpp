// The bodies of the dense kernels, run block after block, against the plain twins of the host
// kernels: bit for bit.
#include <fmt/format.h>

#include "kernels/cast.hpp"
#include "kernels/reduce.hpp"
#include "kernels/scalar.hpp"
#include "tests/cuda/kernel_support.hpp"

using namespace pith;
using namespace pith::kernels::test;
using namespace pith::cuda::test;
using cuda::CastArgs;
using cuda::CombineArgs;
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

TEST_CASE("reduce kernels have the bits of the host's") {
  const unsigned blocks = GENERATE(1u, 3u);
  for (const DType type : all_types) {
    const std::size_t size = size_of(type);
    for (const Op op : {Op::sum, Op::prod, Op::max, Op::min}) {
      const std::string name = fmt::format("reduce_{}_{}", short_name(type), name_of(op));
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
          CombineArgs args{out.data, second.data, in_a.data, in_b.data, count, 0, nullptr, 0};
          kernel(name)(&args, blocks);
          REQUIRE(first_difference(copy_of(out.data, count * size), expected) == -1);
          REQUIRE(first_difference(copy_of(second.data, count * size), expected) == -1);
          REQUIRE(first_difference(copy_of(out.data + count * size, 64), Bytes(64)) == -1);
          args.out = in_a.data;  // in place
          args.second_out = nullptr;
          kernel(name)(&args, blocks);
          REQUIRE(first_difference(copy_of(in_a.data, count * size), expected) == -1);
        }
      }
    }
  }
}

TEST_CASE("scale and divide kernels have the bits of the host's") {
  for (const DType type : all_types) {
    const std::size_t size = size_of(type);
    for (const std::size_t count : counts) {
      INFO(short_name(type) << " of " << count);
      const Bytes a = random_elements(type, count, 0, 3);
      const Bytes factor = random_elements(type, 1, 0, 4);
      Bytes expected(count * size);
      kernels::scale(expected.data(), a.data(), factor.data(), count, type);
      Buffer in(a, size);
      Buffer out(count * size);
      Buffer at(factor, 0);
      CombineArgs args{out.data, nullptr, in.data, nullptr, count, 0, nullptr, 0};
      std::memcpy(&args.bits, factor.data(), size);
      kernel("scale_" + short_name(type))(&args, 2);
      REQUIRE(first_difference(copy_of(out.data, count * size), expected) == -1);
      args.bits = 0;
      args.where = at.data;
      kernel("scale_" + short_name(type))(&args, 2);
      REQUIRE(first_difference(copy_of(out.data, count * size), expected) == -1);
      for (const float divisor : {1.0f, 3.0f, 300.0f}) {
        Bytes quotient = a;
        scalar::finish_avg(quotient.data(), count, type, divisor);
        Buffer data(a, 0);
        CombineArgs divide{data.data, nullptr, data.data, nullptr, count, 0, nullptr, divisor};
        kernel("divide_" + short_name(type))(&divide, 2);
        REQUIRE(first_difference(copy_of(data.data, count * size), quotient) == -1);
      }
    }
  }
}

TEST_CASE("cast kernels have the bits of the host's") {
  for (const DType from : all_types) {
    for (const DType to : all_types) {
      if (!is_float(from) || !is_float(to)) continue;
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

TEST_CASE("the copy kernel copies any bytes") {
  for (const std::size_t bytes : {0, 1, 15, 17, 100000}) {
    for (const std::size_t from : {0, 1, 8}) {
      for (const std::size_t to : {0, 1, 9}) {
        const Bytes data = random_elements(DType::u8, bytes, 0, 7);
        Buffer in(data, from);
        Buffer out(Bytes(bytes), to);
        const CombineArgs args{out.data, nullptr, in.data, nullptr, bytes, 0, nullptr, 0};
        kernel("copy")(&args, 2);
        REQUIRE(first_difference(copy_of(out.data, bytes), data) == -1);
      }
    }
  }
}
