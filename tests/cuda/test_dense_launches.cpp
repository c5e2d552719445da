// The dense kernels through the compute seam, launchers and kernels, against the plain twins of the
// host kernels.
#include "core/kernel_args.hpp"
#include "kernels/reduce.hpp"
#include "kernels/scalar.hpp"
#include "tests/cuda/device_runner.hpp"

using namespace pith;
using namespace pith::kernels::test;
using pith::cuda::test::Runner;
using ByteVector = std::vector<std::byte>;
namespace scalar = pith::kernels::scalar;

TEST_CASE("reductions of every type and operation on a device are the host's") {
  Runner runner;
  for (const DType type : all_types) {
    for (const Op op : all_ops) {
      if (!is_defined(op, type)) continue;
      for (const std::size_t count : {0, 1, 7, 1000, 70000}) {
        const std::size_t bytes = count * size_of(type);
        const std::size_t at = count == 1000 ? size_of(type) : 0;
        const ByteVector a = random_elements(type, count, 0, 1);
        const ByteVector b = random_elements(type, count, at, 2);
        ByteVector expected(bytes), out(bytes);
        scalar::reduce(expected.data(), a.data(), b.data() + at, count, type, op);
        INFO(name_of(type) << " " << name_of(op) << " of " << count);
        runner.run<ReduceKernel>({out.data(), a.data(), b.data() + at, count, type, op});
        REQUIRE(first_difference(out, expected) == -1);
      }
    }
  }
}

TEST_CASE("reductions of many vectors on a device are the host's") {
  Runner runner;
  for (const DType type : all_types) {
    for (const Op op : all_ops) {
      if (!is_defined(op, type)) continue;
      for (const std::size_t inputs : {1, 2, 3, 32}) {
        for (const std::size_t count : {0, 3, 3000}) {
          ReduceManyKernel::Args args{};
          args.count = count;
          args.type = type;
          args.op = op;
          args.divisor = op == Op::avg ? static_cast<float>(inputs) : 0;
          args.inputs = static_cast<std::uint32_t>(inputs);
          args.outputs = 2;
          std::vector<ByteVector> in;
          for (std::size_t k = 0; k < inputs; ++k) {
            in.push_back(random_elements(type, count, 0, static_cast<unsigned>(k)));
            args.in.at(k) = in.back().data();
          }
          ByteVector expected(count * size_of(type)), out(expected.size());
          scalar::reduce_many(expected.data(), args.in.data(), static_cast<int>(inputs), count,
                              type, op);
          if (op == Op::avg) scalar::finish_avg(expected.data(), count, type, args.divisor);
          args.out = {out.data(), in[inputs / 2].data()};
          INFO(name_of(type) << " " << name_of(op) << ", " << inputs << " of " << count);
          runner.run<ReduceManyKernel>(args);
          REQUIRE(first_difference(out, expected) == -1);
          REQUIRE(first_difference(in[inputs / 2], expected) == -1);
        }
      }
    }
  }
}

TEST_CASE("divisions and scales on a device are the host's") {
  Runner runner;
  for (const DType type : all_types) {
    for (const std::size_t count : {0, 5, 5000}) {
      const ByteVector a = random_elements(type, count, 0, 3);
      const ByteVector factor = random_elements(type, 1, 0, 4);
      ByteVector expected = a, out = a;
      scalar::finish_avg(expected.data(), count, type, 3);
      runner.run<FinishAvgKernel>({out.data(), count, type, 3});
      REQUIRE(first_difference(out, expected) == -1);
      kernels::scale(expected.data(), a.data(), factor.data(), count, type);
      ElementBits bits = {};
      std::memcpy(&bits, factor.data(), factor.size());
      runner.run<ScaleKernel>({out.data(), a.data(), count, type, bits});
      REQUIRE(first_difference(out, expected) == -1);
      std::fill(out.begin(), out.end(), std::byte{1});
      runner.run<ScaleKernel>({out.data(), a.data(), count, type, {}, factor.data()});
      REQUIRE(first_difference(out, expected) == -1);
      runner.run<CopyKernel>({out.data(), a.data(), a.size()});
      REQUIRE(first_difference(out, a) == -1);
    }
  }
}
