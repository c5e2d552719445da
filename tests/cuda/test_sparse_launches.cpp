// The compression kernels through the compute seam, launchers and kernels, against the plain twins
// of the host kernels. Bit for bit but for the order of sums of squares.
#include "kernels/coded_values.hpp"
#include "kernels/index_code.hpp"
#include "tests/cuda/device_runner.hpp"

using namespace pith;
using namespace pith::kernels::test;
namespace scalar = pith::kernels::scalar;
using pith::cuda::test::OnHeap;
using pith::cuda::test::Runner;
using ByteVector = std::vector<std::byte>;
using Indices = std::vector<std::uint32_t>;
using Floats = std::vector<float>;

namespace {

struct PassState {
  Floats accumulator;
  ByteVector gradient;
  Indices indices;
  Floats values;
  OnHeap<PassResult> result = {{77, 77, 77}};
  std::vector<MagnitudeHistogram> histogram = std::vector<MagnitudeHistogram>(1);
};

struct PassCase {
  Kind kind;
  std::size_t count;
  std::size_t at;  // elements that the accumulator misses 16 bytes by, bytes for the gradient
  DType type;
  bool gradient, fresh, histogram;
  float threshold;
  std::size_t capacity;
};

SelectKernel::Args args_of(PassState& state, const PassCase& c) {
  return {{state.accumulator.data() + c.at, c.gradient ? state.gradient.data() + c.at : nullptr,
           c.type, c.count, c.fresh, &state.result[0], c.histogram ? &state.histogram[0] : nullptr},
          c.threshold,
          1000,
          state.indices.data(),
          state.values.data(),
          c.capacity};
}

bool alike(const PassState& a, const PassState& b) {
  const MagnitudeHistogram& x = a.histogram[0];
  const MagnitudeHistogram& y = b.histogram[0];
  return same(a.accumulator, b.accumulator) && a.indices == b.indices && same(a.values, b.values) &&
         a.result[0].selected == b.result[0].selected &&
         a.result[0].nonfinite == b.result[0].nonfinite &&
         close(a.result[0].squares, b.result[0].squares) && x.counts == y.counts &&
         std::equal(x.squares.begin(), x.squares.end(), y.squares.begin(),
                    [](double p, double q) { return close(p, q); });
}

void check_pass(Runner& runner, const PassCase& c) {
  PassState plain;
  plain.accumulator = floats_of(c.kind, c.count + c.at + 20, 1);
  plain.gradient = as_type(floats_of(c.kind, c.count, 2), c.type, c.at);
  plain.indices.assign(c.capacity + 20, 99);
  plain.values.assign(c.capacity + 20, 12345.0f);
  plain.histogram[0].counts[5] = 3;
  PassState fast = plain;
  scalar::select(args_of(plain, c));
  runner.run<SelectKernel>(args_of(fast, c));
  CAPTURE(int(c.kind), c.count, c.at, c.gradient, c.fresh, c.threshold, c.capacity);
  CAPTURE(plain.result[0].selected, fast.result[0].selected, plain.result[0].squares,
          fast.result[0].squares);
  INFO(name_of(c.type));
  REQUIRE(alike(plain, fast));
  plain.histogram = fast.histogram = std::vector<MagnitudeHistogram>(1);
  scalar::accumulate(args_of(plain, c).pass);
  runner.run<AccumulateKernel>(args_of(fast, c).pass);
  REQUIRE(alike(plain, fast));
}

// One list in device memory and its twin.
struct Pairs {
  Indices indices;
  Floats values, accumulator;
  OnHeap<float> smallest = {0};
  OnHeap<double> squares = {0};
};

Pairs pairs_of(Kind kind, std::size_t count) {
  Pairs pairs;
  pairs.values = floats_of(kind, count, static_cast<unsigned>(count));
  for (std::size_t i = 0; i < count; ++i) {
    pairs.indices.push_back(static_cast<std::uint32_t>(3 * i + i % 2));
  }
  pairs.accumulator.assign(3 * count + 3, 0.5f);
  return pairs;
}

void check_largest(Runner& runner, Kind kind, std::size_t count, std::size_t k, bool accumulate) {
  Pairs plain = pairs_of(kind, count), fast = plain;
  const auto args = [&](Pairs& p) {
    return KeepLargestKernel::Args{
        p.indices.data(), p.values.data(), count, k, accumulate ? p.accumulator.data() : nullptr,
        &p.smallest[0],   &p.squares[0]};
  };
  scalar::keep_largest(args(plain));
  runner.run<KeepLargestKernel>(args(fast));
  for (Pairs* pairs : {&plain, &fast}) {
    pairs->indices.resize(k);
    pairs->values.resize(k);
  }
  CAPTURE(int(kind), count, k, plain.smallest[0], fast.smallest[0]);
  REQUIRE(plain.indices == fast.indices);
  REQUIRE(same(plain.values, fast.values));
  REQUIRE(same(plain.accumulator, fast.accumulator));
  REQUIRE(same(plain.smallest[0], fast.smallest[0]));
  REQUIRE(close(plain.squares[0], fast.squares[0]));
}

}  // namespace

TEST_CASE("accumulate and select passes on a device are the host's") {
  Runner runner;
  for (const DType type : value_types) {
    for (const Kind kind : all_kinds) {
      for (const std::size_t count : {0, 1, 5, 4095, 4097, 20000}) {
        for (const std::size_t at : {0, 1, 2}) {
          check_pass(runner, {kind, count, at, type, true, false, at == 1, 1.5f, count});
        }
      }
      check_pass(runner, {kind, 9000, 0, type, true, true, true, 0.5f, 9000});
      check_pass(runner, {kind, 9000, 3, type, false, false, true, 0.5f, 9000});
      check_pass(runner, {kind, 9000, 0, type, false, true, false, 0.5f, 9000});
    }
  }
}

TEST_CASE("a list that is full leaves the others where they are") {
  Runner runner;
  for (const std::size_t capacity : {0, 1, 100, 4000, 5000}) {
    for (const float threshold : {0.0f, -1.0f, 0.5f, 3e38f, std::nanf("")}) {
      check_pass(runner,
                 {Kind::normal, 10000, 1, DType::f32, true, false, false, threshold, capacity});
    }
  }
}

TEST_CASE("a sample on a device is the host's") {
  Runner runner;
  constexpr std::size_t line = SampleKernel::line;
  for (const DType type : value_types) {
    for (const Kind kind : all_kinds) {
      for (const std::size_t lines : {0, 1, 15, 16, 17, 300}) {
        for (const std::size_t stride : {line, line + 5, 3 * line}) {
          const bool fresh = lines == 15;
          const std::size_t at = lines % 2;
          const std::size_t count = lines * stride + line;
          PassState state;
          state.accumulator = floats_of(kind, count + at, 1);
          state.gradient = as_type(floats_of(kind, count, 2), type, at);
          const Floats before = state.accumulator;
          PassCase c{kind, count, at, type, stride != 3 * line, fresh, false, 0, 0};
          Floats plain(lines * line + 1, 77.0f), fast = plain;
          scalar::sample({args_of(state, c).pass, lines, stride, plain.data()});
          runner.run<SampleKernel>({args_of(state, c).pass, lines, stride, fast.data()});
          CAPTURE(int(kind), lines, stride);
          INFO(name_of(type));
          REQUIRE(same(plain, fast));
          REQUIRE(same(state.accumulator, before));
        }
      }
    }
  }
}

TEST_CASE("a histogram counts finite values of every size") {
  Runner runner;
  for (const Kind kind : all_kinds) {
    const Floats values = floats_of(kind, 150000, 3);
    std::vector<MagnitudeHistogram> plain(1), fast(1);
    scalar::histogram({values.data(), values.size(), &plain[0]});
    runner.run<HistogramKernel>({values.data(), values.size(), &fast[0]});
    REQUIRE(plain[0].counts == fast[0].counts);
    for (std::size_t i = 0; i < MagnitudeHistogram::bins; ++i) {
      REQUIRE(close(plain[0].squares[i], fast[0].squares[i]));
    }
  }
}

TEST_CASE("the k largest on a device are those of a stable sort") {
  Runner runner;
  for (const Kind kind : all_kinds) {
    if (kind == Kind::nonfinite || kind == Kind::specials) continue;  // lists are finite
    for (const std::size_t count : {1, 2, 70, 1024, 1025, 30000}) {
      for (const std::size_t k : {std::size_t{1}, count / 100 + 1, (count + 1) / 2, count}) {
        for (const bool accumulate : {true, false}) {
          check_largest(runner, kind, count, k, accumulate);
        }
      }
    }
  }
}

TEST_CASE("many of the largest move within a long list") {
  Runner runner;
  check_largest(runner, Kind::normal, 20000, 15000, true);
}

TEST_CASE("more or fewer of the largest than there are, and of too many, are refused") {
  constexpr std::size_t least_too_many = std::size_t{1} << 31;
  const auto args = [](std::size_t count, std::size_t k) {
    return KeepLargestKernel::Args{nullptr, nullptr, count, k, nullptr, nullptr, nullptr};
  };
  CHECK(Runner().refuses<KeepLargestKernel>(args(5, 0)));
  CHECK(Runner().refuses<KeepLargestKernel>(args(0, 0)));
  CHECK(Runner().refuses<KeepLargestKernel>(args(5, 6)));
  CHECK(Runner().refuses<KeepLargestKernel>(args(least_too_many, 1)));
}

TEST_CASE("a list is split by a threshold on a device") {
  Runner runner;
  for (const std::size_t count : {0, 1, 1023, 1025, 9000}) {
    for (const float threshold : {0.0f, 0.7f, 100.0f}) {
      Pairs plain = pairs_of(Kind::normal, count), fast = plain;
      Pairs plain_low = pairs_of(Kind::zeros, count), fast_low = plain_low;
      OnHeap<std::size_t> counts = {7, 7, 7, 7};
      scalar::split({plain.indices.data(), plain.values.data(), count, threshold,
                     plain_low.indices.data(), plain_low.values.data(), &counts[0], &counts[1]});
      runner.run<SplitKernel>({fast.indices.data(), fast.values.data(), count, threshold,
                               fast_low.indices.data(), fast_low.values.data(), &counts[2],
                               &counts[3]});
      REQUIRE(counts[0] == counts[2]);
      REQUIRE(counts[1] == counts[3]);
      const auto kept = static_cast<std::ptrdiff_t>(counts[0]);
      REQUIRE(
          std::equal(plain.indices.begin(), plain.indices.begin() + kept, fast.indices.begin()));
      REQUIRE(std::equal(plain.values.begin(), plain.values.begin() + kept, fast.values.begin()));
      REQUIRE(plain_low.indices == fast_low.indices);
      REQUIRE(plain_low.values == fast_low.values);
    }
  }
}

TEST_CASE("take, round, return and squares on a device are the host's") {
  Runner runner;
  for (const DType type : value_types) {
    for (const Kind kind : all_kinds) {
      for (const std::size_t span : {0, 1, 40, 9000}) {
        for (const std::size_t offset : {0, 1}) {
          const Indices indices = some_indices(0, span, 0.4, 3);
          const std::size_t count = indices.size();
          const Floats in = floats_of(kind, count, 6);
          Floats plain = floats_of(kind, span, 4), fast = plain;
          ByteVector plain_out(count * size_of(type) + 16), fast_out = plain_out;
          double plain_squares = -1;
          OnHeap<double> fast_squares = {-1};
          std::byte* const to_plain = plain_out.data() + offset;
          std::byte* const to_fast = fast_out.data() + offset;
          CAPTURE(int(kind), span, offset);
          INFO(name_of(type));
          scalar::take({plain.data(), indices.data(), count, to_plain, type, &plain_squares});
          runner.run<TakeKernel>(
              {fast.data(), indices.data(), count, to_fast, type, &fast_squares[0]});
          REQUIRE(same(plain, fast));
          REQUIRE((type == DType::f32 || plain_out == fast_out));
          REQUIRE(close(plain_squares, fast_squares[0]));
          scalar::round_values({plain.data(), indices.data(), in.data(), count, to_plain, type});
          runner.run<RoundKernel>({fast.data(), indices.data(), in.data(), count, to_fast, type});
          REQUIRE(same(plain, fast));
          REQUIRE(plain_out == fast_out);
          scalar::give_back({plain.data(), indices.data(), to_plain, count, type});
          runner.run<ReturnKernel>({fast.data(), indices.data(), to_fast, count, type});
          REQUIRE(same(plain, fast));
          scalar::squares({to_plain, count, type, &plain_squares});
          runner.run<SquaresKernel>({to_fast, count, type, &fast_squares[0]});
          REQUIRE(close(plain_squares, fast_squares[0]));
        }
      }
    }
  }
}

TEST_CASE("sums of values on a device are rounded once") {
  Runner runner;
  for (const DType type : value_types) {
    for (const Kind kind : all_kinds) {
      for (const std::size_t n : {std::size_t{1}, std::size_t{3}, std::size_t{700}}) {
        const std::size_t span = n > 100 ? 60 : 3000;
        const Indices indices = some_indices(0, span, 0.5, 3);
        const std::size_t count = indices.size();
        std::vector<ByteVector> in;
        std::vector<const std::byte*> pointers;
        for (std::size_t k = 0; k < n; ++k) {
          in.push_back(as_type(floats_of(kind, count, static_cast<unsigned>(k)), type, k % 3));
        }
        for (std::size_t k = 0; k < n; ++k) pointers.push_back(in[k].data() + k % 3);
        Floats plain = floats_of(kind, span, 4), fast = plain;
        ByteVector plain_out(count * size_of(type)), fast_out = plain_out;
        scalar::sum_values(
            {plain_out.data(), pointers.data(), n, count, type, plain.data(), indices.data()});
        runner.run<SumValuesKernel>(
            {fast_out.data(), pointers.data(), n, count, type, fast.data(), indices.data()});
        REQUIRE(same(plain, fast));
        REQUIRE(same_values(plain_out, fast_out, type));
      }
    }
  }
}

TEST_CASE("values are coded on a device as on the host") {
  using enum Coding::Kind;
  Runner runner;
  constexpr CodingInput input = {3, 0x123456789abcdef0u, 77};
  for (const Coding& coding :
       {Coding{levels, 8, false, 256}, Coding{levels, 4, true, 512}, Coding{levels, 2, true, 128},
        Coding{powers, 8, true, 512}, Coding{powers, 8, false, 4096}, Coding{signs, 1, false, 1024},
        Coding{mean_signs, 1, false, 1024}, Coding{two_means, 1, false, 1024},
        Coding{.kind = levels, .bits = 2, .draws = true, .block = 512, .clip = 2.5F},
        Coding{.kind = ternary, .block = 1024, .sparsity = 1.75F}, Coding{e4m3, 8, false, 256},
        Coding{e5m2, 8, false, 256}, Coding{f16, 16, false, 256}, Coding{dynamic, 8, false, 256},
        Coding{bf16, 16, false, 64}}) {
    for (const Kind kind : all_kinds) {
      for (const std::size_t count : {0, 1, 300, 5000}) {
        CAPTURE(int(coding.kind), int(coding.bits), int(kind), count);
        const Floats values = floats_of(kind, count, 1);
        ByteVector plain(coding.bytes(count)), fast = plain;
        scalar::encode_values({coding, input, values.data(), count, plain.data()});
        runner.run<EncodeValuesKernel>({coding, input, values.data(), count, fast.data()});
        REQUIRE(plain == fast);
        for (const DType type : value_types) {
          const std::size_t at = count % 2;  // misaligned
          ByteVector plain_out(count * size_of(type) + at), fast_out = plain_out;
          const float* const instead = at == 0 ? values.data() : nullptr;
          scalar::decode_values(
              {coding, plain.data(), count, plain_out.data() + at, type, 3, instead});
          runner.run<DecodeValuesKernel>(
              {coding, plain.data(), count, fast_out.data() + at, type, 3, instead});
          plain_out.erase(plain_out.begin(), plain_out.begin() + static_cast<std::ptrdiff_t>(at));
          fast_out.erase(fast_out.begin(), fast_out.begin() + static_cast<std::ptrdiff_t>(at));
          REQUIRE(same_values(plain_out, fast_out, type));
        }
      }
    }
  }
}

TEST_CASE("sums of lists on a device keep the lists' order") {
  Runner runner;
  for (const DType type : value_types) {
    for (const std::size_t n : {0, 1, 3, 300}) {
      for (const std::size_t span : {0, 1, 4096, 20000}) {
        if (n == 300 && span > 4096) continue;
        constexpr std::uint32_t first = 777;
        std::vector<Indices> indices;
        std::vector<ByteVector> values;
        std::vector<SparseList> lists;
        for (std::size_t l = 0; l < n; ++l) {
          const auto seed = static_cast<unsigned>(l);
          indices.push_back(some_indices(first, span, l % 3 == 0 ? 0.3 : 0.01, seed));
          values.push_back(as_type(floats_of(Kind::normal, indices[l].size(), seed), type));
          if (!indices[l].empty() && l == 0) std::memset(values[l].data(), 0, 2);
        }
        std::size_t all = 0;
        for (std::size_t l = 0; l < n; ++l) {
          lists.push_back({indices[l].data(), values[l].data(), indices[l].size()});
          all += indices[l].size();
        }
        Floats sums(span);
        std::vector<std::uint64_t> touched(span / 64 + 1);
        Indices plain(all + 1, 5), fast = plain;
        Floats plain_values(all + 1, 5), fast_values = plain_values;
        std::size_t plain_count = 9;
        OnHeap<std::size_t> fast_count = {9};
        scalar::sum_lists({lists.data(), n, type, first, span, sums.data(), touched.data(),
                           plain.data(), plain_values.data(), &plain_count});
        runner.run<SumListsKernel>({lists.data(), n, type, first, span, sums.data(), touched.data(),
                                    fast.data(), fast_values.data(), &fast_count[0]});
        CAPTURE(n, span);
        REQUIRE(plain_count == fast_count[0]);
        REQUIRE(plain == fast);
        REQUIRE(same(plain_values, fast_values));
      }
    }
  }
}

TEST_CASE("dense results on a device are the host's") {
  Runner runner;
  for (const DType type : value_types) {
    for (const DType value_type : value_types) {
      for (const Kind kind : all_kinds) {
        for (const std::size_t span : {1, 4096, 10000}) {
          constexpr std::uint32_t first = 50;
          const Indices indices = some_indices(first, span, 0.1, 8);
          const ByteVector values = as_type(floats_of(kind, indices.size(), 2), value_type);
          ByteVector plain(span * size_of(type) + 8, std::byte{3}), fast = plain;
          const std::size_t at = span % 2;
          const auto args = [&](ByteVector& out) {
            return ScatterKernel::Args{
                out.data() + at, type,       first,          span, indices.data(),
                values.data(),   value_type, indices.size(), 3};
          };
          scalar::scatter(args(plain));
          runner.run<ScatterKernel>(args(fast));
          REQUIRE(same_values(plain, fast, type));
          const ConvertKernel::Args convert{nullptr,    type,           values.data(),
                                            value_type, indices.size(), 7};
          ConvertKernel::Args to_plain = convert, to_fast = convert;
          to_plain.out = plain.data();
          to_fast.out = fast.data();
          scalar::convert(to_plain);
          runner.run<ConvertKernel>(to_fast);
          REQUIRE(same_values(plain, fast, type));
          scalar::fill_nan({plain.data(), type, span});
          runner.run<FillNanKernel>({fast.data(), type, span});
          REQUIRE(plain == fast);
        }
      }
    }
  }
}

TEST_CASE("codings of indices on a device are the host's, and are read back") {
  Runner runner;
  for (const std::size_t span : {std::size_t{0}, std::size_t{1}, std::size_t{1000},
                                 std::size_t{65536}, std::size_t{65537}, std::size_t{300000}}) {
    for (const double share : {0.0, 0.0001, 0.01, 0.2, 0.5, 1.0}) {
      constexpr std::uint32_t first = 70000;
      const Indices indices = some_indices(first, span, share, 4);
      CAPTURE(span, share, indices.size());
      ByteVector plain(EncodeIndicesKernel::coded_bound(indices.size(), span)), fast = plain;
      std::size_t plain_bytes = 0;
      OnHeap<std::size_t> written = {1};
      scalar::encode_indices(
          {indices.data(), indices.size(), first, span, plain.data(), &plain_bytes});
      runner.run<EncodeIndicesKernel>(
          {indices.data(), indices.size(), first, span, fast.data(), &written[0]});
      const std::size_t fast_bytes = written[0];
      REQUIRE(plain_bytes == fast_bytes);
      plain.resize(plain_bytes);
      fast.resize(fast_bytes);
      REQUIRE(first_difference(plain, fast) == -1);
      OnHeap<Decoded> decoded(1);
      const Decoded& result = decoded[0];
      Indices read(indices.size() + 5, 9);
      // Behind the coding other bytes may follow.
      fast.resize(fast_bytes + 7, std::byte{0xff});
      runner.run<DecodeIndicesKernel>(
          {fast.data(), fast.size(), first, span, read.data(), indices.size(), &decoded[0]});
      REQUIRE(result.valid);
      REQUIRE(result.count == indices.size());
      REQUIRE(result.bytes == fast_bytes);
      REQUIRE(std::equal(indices.begin(), indices.end(), read.begin()));
      for (std::size_t i = indices.size(); i < read.size(); ++i) REQUIRE(read[i] == 9);
      if (indices.empty()) continue;
      runner.run<DecodeIndicesKernel>(
          {fast.data(), fast_bytes, first, span, read.data(), indices.size() - 1, &decoded[0]});
      REQUIRE_FALSE(result.valid);
      runner.run<DecodeIndicesKernel>(
          {fast.data(), fast_bytes - 1, first, span, read.data(), indices.size(), &decoded[0]});
      REQUIRE_FALSE(result.valid);
    }
  }
}

TEST_CASE("a device accepts exactly the codings that the host accepts") {
  Runner runner;
  std::mt19937_64 random(11);
  for (int round = 0; round < 1500; ++round) {
    const std::size_t span = round % 3 == 0 ? 100000 : 1 + random() % 3000;
    const Indices indices = some_indices(0, span, round % 2 == 0 ? 0.01 : 0.3, 4);
    ByteVector coded(EncodeIndicesKernel::coded_bound(indices.size(), span));
    std::size_t bytes = 0;
    scalar::encode_indices({indices.data(), indices.size(), 0, span, coded.data(), &bytes});
    coded.resize(bytes);
    for (std::size_t flips = 1 + random() % 3; flips > 0; --flips) {
      const std::size_t at = round % 4 == 0 ? random() % 8 % bytes : random() % bytes;
      coded[at] ^= std::byte{1} << static_cast<int>(random() % 8);
    }
    const std::size_t capacity = indices.size() + 2;
    Decoded plain;
    OnHeap<Decoded> decoded(1);
    const Decoded& fast = decoded[0];
    Indices plain_out(capacity), fast_out(capacity + 8, 9);
    scalar::decode_indices({coded.data(), bytes, 0, span, plain_out.data(), capacity, &plain});
    runner.run<DecodeIndicesKernel>(
        {coded.data(), bytes, 0, span, fast_out.data(), capacity, &decoded[0]});
    CAPTURE(round, span, bytes);
    REQUIRE(plain.valid == fast.valid);
    for (std::size_t i = capacity; i < fast_out.size(); ++i) REQUIRE(fast_out[i] == 9);
    if (!plain.valid) continue;
    REQUIRE(plain.count == fast.count);
    REQUIRE(plain.bytes == fast.bytes);
    REQUIRE(std::equal(plain_out.begin(),
                       plain_out.begin() + static_cast<std::ptrdiff_t>(plain.count),
                       fast_out.begin()));
  }
}
