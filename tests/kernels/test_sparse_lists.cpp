// The kernels that work on lists of indices and values.
#include "sparse_support.hpp"

namespace pith::kernels::test {
namespace {

using Indices = std::vector<std::uint32_t>;

struct Kept {
  Indices indices;
  std::vector<float> values, accumulator;
  std::size_t shift = 0;  // where each of them begins
  float smallest = 0;
  double squares = 0;

  KeepLargestKernel::Args args(std::size_t k, bool accumulate) {
    return {indices.data() + shift,
            values.data() + shift,
            indices.size() - shift,
            k,
            accumulate ? accumulator.data() + shift : nullptr,
            &smallest,
            &squares};
  }
};

void check_keep(Kind kind, std::size_t count, std::size_t k, bool accumulate, std::size_t shift) {
  Kept plain;
  plain.shift = shift;
  plain.values = floats_of(kind, shift + count, static_cast<unsigned>(count));
  plain.indices.assign(shift, 0);
  for (std::size_t i = 0; i < count; ++i) {
    plain.indices.push_back(static_cast<std::uint32_t>(3 * i + i % 2));
  }
  plain.accumulator.assign(shift + 3 * count + 3, 0.5f);
  Kept fast = plain;
  scalar::keep_largest(plain.args(k, accumulate));
  keep_largest(fast.args(k, accumulate));
  for (Kept* kept : {&plain, &fast}) {
    kept->indices.resize(shift + k);
    kept->values.resize(shift + k);
  }
  const bool equal = plain.indices == fast.indices && same(plain.values, fast.values) &&
                     same(plain.accumulator, fast.accumulator) &&
                     same(plain.smallest, fast.smallest) && close(plain.squares, fast.squares);
  if (!equal) {
    CAPTURE(count, k, accumulate, shift, plain.smallest, fast.smallest);
    FAIL("keep_largest differs; kind " << int(kind));
  }
}

TEST_CASE("the k largest are those of a stable sort") {
  for_each_target([] {
    for (const Kind kind : all_kinds) {
      for (std::size_t count = 1; count <= 70; ++count) {
        for (std::size_t k = 1; k <= count; k += 1 + count / 9) {
          for (const std::size_t shift : {0, 1}) check_keep(kind, count, k, count % 2 == 0, shift);
        }
      }
      for (const std::size_t count : {513, 4096, 4097, 20'000}) {
        for (const std::size_t k :
             {std::size_t{1}, count / 100 + 1, count / 2, count * 97 / 100, count - 1, count}) {
          check_keep(kind, count, k, true, count % 2);
        }
      }
    }
    SUCCEED();
  });
}

// Every value that the sample of each 32nd sees is small, or large: the guess is wrong both ways.
void check_misled(bool largest) {
  Kept plain;
  constexpr std::size_t count = 64'000;
  plain.values = floats_of(Kind::normal, count, 5);
  for (std::size_t i = 0; i < count; ++i) {
    plain.indices.push_back(static_cast<std::uint32_t>(i));
    if (i % 32 == 0) plain.values[i] = largest ? 1e9f : 1e-9f;
  }
  plain.accumulator.assign(count, 0);
  Kept fast = plain;
  scalar::keep_largest(plain.args(count / 2, true));
  keep_largest(fast.args(count / 2, true));
  REQUIRE(plain.smallest == fast.smallest);
  REQUIRE(plain.accumulator == fast.accumulator);
  REQUIRE(
      std::equal(plain.indices.begin(), plain.indices.begin() + count / 2, fast.indices.begin()));
}

TEST_CASE("more candidates than the scratch holds, and samples that mislead") {
  for_each_target([] {
    check_keep(Kind::ties, 700'000, 300'000, true, 0);
    check_keep(Kind::equal, 700'000, 123'456, true, 1);
    for (const bool largest : {false, true}) check_misled(largest);
  });
}

template <class Body>
void for_each_list(Body body) {
  for_each_target([&] {
    for (const DType type : value_types) {
      for (const Kind kind : all_kinds) {
        for (std::size_t span = 0; span <= 200; ++span) body(type, kind, span, 0.6);
        body(type, kind, std::size_t{9'000}, 0.1);
        body(type, kind, std::size_t{9'000}, 0.001);  // with gaps of several bitmap words
      }
    }
    SUCCEED();
  });
}

// The same behind `shift` elements of another buffer.
Indices shifted(Indices indices, std::size_t shift) {
  indices.insert(indices.begin(), shift, 0);
  return indices;
}

TEST_CASE("take leaves what rounding lost") {
  for_each_list([](DType type, Kind kind, std::size_t span, double share) {
    const std::size_t shift = span % 2;
    const Indices indices = shifted(some_indices(0, span, share, 3), shift);
    const std::size_t count = indices.size() - shift;
    const std::uint32_t* const at = indices.data() + shift;
    std::vector<float> plain = floats_of(kind, shift + span, 4), fast = plain;
    const std::size_t offset = shift * size_of(type);
    Bytes plain_out(offset + count * size_of(type) + 16, std::byte{0x5a}), fast_out = plain_out;
    double plain_squares = -1, fast_squares = -1;
    scalar::take(
        {plain.data() + shift, at, count, plain_out.data() + offset, type, &plain_squares});
    take({fast.data() + shift, at, count, fast_out.data() + offset, type, &fast_squares});
    const bool equal = same(plain, fast) && same_values(plain_out, fast_out, type) &&
                       close(plain_squares, fast_squares);
    if (!equal) FAIL("take: span " << span << " kind " << int(kind) << " " << name_of(type));
  });
}

TEST_CASE("round_values adds what was lost, give_back adds all") {
  for_each_list([](DType type, Kind kind, std::size_t span, double share) {
    const std::size_t shift = span % 2;
    const Indices indices = shifted(some_indices(0, span, share, 3), shift);
    const std::size_t count = indices.size() - shift;
    const std::uint32_t* const at = indices.data() + shift;
    const std::vector<float> in = floats_of(kind, shift + count, 6);
    std::vector<float> plain = floats_of(kind, shift + span, 4), fast = plain;
    const std::size_t offset = shift * size_of(type);
    Bytes plain_out(offset + count * size_of(type) + 16, std::byte{0x5a}), fast_out = plain_out;
    scalar::round_values(
        {plain.data() + shift, at, in.data() + shift, count, plain_out.data() + offset, type});
    round_values(
        {fast.data() + shift, at, in.data() + shift, count, fast_out.data() + offset, type});
    if (!same(plain, fast) || !same_values(plain_out, fast_out, type)) {
      FAIL("round: span " << span << " kind " << int(kind) << " " << name_of(type));
    }
    scalar::give_back({plain.data() + shift, at, plain_out.data() + offset, count, type});
    give_back({fast.data() + shift, at, fast_out.data() + offset, count, type});
    if (!same(plain, fast)) FAIL("give_back: span " << span << " kind " << int(kind));
  });
}

TEST_CASE("sums of values are rounded once; the output may be an input") {
  for_each_list([](DType type, Kind kind, std::size_t span, double share) {
    const Indices indices = some_indices(0, span, share, 3);
    const std::size_t count = indices.size();
    for (const std::size_t n : {1, 2, 5}) {
      std::vector<Bytes> plain_in, fast_in;
      for (std::size_t k = 0; k < n; ++k) {
        plain_in.push_back(as_type(floats_of(kind, count, static_cast<unsigned>(k)), type, k % 4));
        plain_in.back().resize(plain_in.back().size() + 16, std::byte{0x5a});
      }
      fast_in = plain_in;
      std::vector<float> plain = floats_of(kind, span, 4), fast = plain;
      const auto args = [&](std::vector<Bytes>& in, std::vector<float>& accumulator,
                            std::vector<const std::byte*>& pointers) {
        for (std::size_t k = 0; k < n; ++k) pointers.push_back(in[k].data() + k % 4);
        std::byte* out = in[n - 1].data() + (n - 1) % 4;
        return SumValuesKernel::Args{out,
                                     pointers.data(),
                                     n,
                                     count,
                                     type,
                                     span % 3 == 0 ? nullptr : accumulator.data(),
                                     indices.data()};
      };
      std::vector<const std::byte*> plain_pointers, fast_pointers;
      scalar::sum_values(args(plain_in, plain, plain_pointers));
      sum_values(args(fast_in, fast, fast_pointers));
      Bytes plain_out = plain_in[n - 1], fast_out = fast_in[n - 1];
      for (Bytes* out : {&plain_out, &fast_out}) {
        out->erase(out->begin(), out->begin() + static_cast<std::ptrdiff_t>((n - 1) % 4));
      }
      if (!same(plain, fast) || !same_values(plain_out, fast_out, type)) {
        FAIL("sum: span " << span << " n " << n << " kind " << int(kind) << name_of(type));
      }
    }
  });
}

struct ListSum {
  std::vector<float> sums, values;
  std::vector<std::uint64_t> touched;
  Indices indices;
  std::size_t count = 0;

  ListSum(std::size_t span, std::size_t room)
      : sums(span), values(room + 8, -7), touched((span + 63) / 64), indices(room + 8, 7) {}
};

TEST_CASE("sums of lists name every index once and leave the scratch as it was") {
  for_each_list([](DType type, Kind kind, std::size_t span, double share) {
    constexpr std::uint32_t first = 4'000'000'000u;
    for (const std::size_t n : {0, 1, 2, 7}) {
      std::vector<Indices> indices;
      std::vector<Bytes> values;
      std::vector<SparseList> lists;
      std::size_t all = 0;
      for (std::size_t k = 0; k < n; ++k) {
        const auto seed = static_cast<unsigned>(k);
        indices.push_back(some_indices(first, span, k % 2 == 0 ? share : share / 20, seed));
        values.push_back(as_type(floats_of(kind, indices[k].size(), seed), type));
        all += indices[k].size();
      }
      for (std::size_t k = 0; k < n; ++k) {
        lists.push_back({indices[k].data(), values[k].data(), indices[k].size()});
      }
      const std::size_t room = std::min(all, span);
      ListSum plain(span, room), fast(span, room);
      for (ListSum* sum : {&plain, &fast}) {
        const SumListsKernel::Args args{lists.data(),
                                        n,
                                        type,
                                        first,
                                        span,
                                        sum->sums.data(),
                                        sum->touched.data(),
                                        sum->indices.data(),
                                        sum->values.data(),
                                        &sum->count};
        sum == &plain ? scalar::sum_lists(args) : sum_lists(args);
      }
      REQUIRE(plain.count == fast.count);
      const auto end = static_cast<std::ptrdiff_t>(fast.count);
      const bool equal =
          std::equal(plain.indices.begin(), plain.indices.begin() + end, fast.indices.begin()) &&
          std::equal(plain.values.begin(), plain.values.begin() + end, fast.values.begin(),
                     [](float a, float b) { return same(a, b); }) &&
          std::equal(plain.indices.end() - 8, plain.indices.end(), fast.indices.end() - 8) &&
          plain.sums == fast.sums && plain.touched == fast.touched;
      if (!equal) FAIL("lists: span " << span << " n " << n << " kind " << int(kind));
    }
  });
}

void check_scatter(DType type, DType value_type, Kind kind, std::size_t span, double share,
                   std::size_t offset) {
  constexpr std::uint32_t first = 70'000;
  const Indices indices = some_indices(first, span, share, 8);
  const Bytes values = as_type(floats_of(kind, indices.size(), 2), value_type);
  for (const auto& [divisor, streaming] : {std::pair{1.0f, false}, {3.0f, false}, {1.0f, true}}) {
    Bytes plain(offset + span * size_of(type) + 80, std::byte{0x5a}), fast = plain;
    const auto args = [&, by = divisor, streams = streaming](Bytes& out) {
      return ScatterKernel::Args{.out = out.data() + offset,
                                 .type = type,
                                 .first = first,
                                 .span = span,
                                 .indices = indices.data(),
                                 .values = values.data(),
                                 .value_type = value_type,
                                 .count = indices.size(),
                                 .divisor = by,
                                 .streaming = streams};
    };
    scalar::scatter(args(plain));
    scatter(args(fast));
    if (!same_values(plain, fast, type)) {
      FAIL("scatter: span " << span << " offset " << offset << " kind " << int(kind) << " "
                            << name_of(type) << " from " << name_of(value_type));
    }
  }
}

TEST_CASE("scatter writes the whole range") {
  for_each_target([] {
    for (const DType type : value_types) {
      for (const DType value_type : value_types) {
        for (const Kind kind : {Kind::normal, Kind::specials}) {
          for (std::size_t span = 0; span <= 200; ++span) {
            check_scatter(type, value_type, kind, span, 0.5, span % 5);
          }
        }
        if (value_type != DType::f32 && value_type != type) continue;
        // Streamed: any alignment, a last block that is not whole, blocks of few and of no values.
        const std::size_t large = (std::size_t{4} << 20) / size_of(type);
        check_scatter(type, value_type, Kind::normal, large, 0.02, 0);
        check_scatter(type, value_type, Kind::normal, large + 777, 0.0002, 3 * size_of(type));
      }
    }
    SUCCEED();
  });
}

}  // namespace
}  // namespace pith::kernels::test
