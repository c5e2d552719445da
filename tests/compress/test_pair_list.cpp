// Lists of pairs in runs.
#include "compress/pair_list.hpp"

#include <cstring>
#include <vector>

#include "tests/catch.hpp"

namespace pith::test {

namespace {

void add_run(PairList& list, const std::vector<std::uint32_t>& indices) {
  list.reserve(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    list.indices(list.count())[i] = indices[i];
    const auto value = static_cast<float>(indices[i]) / 2;
    std::memcpy(list.values(list.count()) + 4 * i, &value, 4);
  }
  list.end_run(indices.size());
}

std::vector<std::uint32_t> indices_in(const SparseList& part) {
  for (std::size_t i = 0; i < part.count; ++i) {
    float value = 0;
    std::memcpy(&value, part.values + 4 * i, 4);
    CHECK(value == static_cast<float>(part.indices[i]) / 2);
  }
  return {part.indices, part.indices + part.count};
}

using Indices = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("runs and parts of them") {
  PairList list;
  list.begin(DType::f32);
  add_run(list, {3, 5, 100});
  add_run(list, {});
  add_run(list, {0, 4, 0xffffffff});
  CHECK(list.runs() == 3);
  CHECK(list.count() == 6);
  CHECK(indices_in(list.run(0)) == Indices{3, 5, 100});
  CHECK(indices_in(list.run(1)).empty());
  CHECK(indices_in(list.run(2)) == Indices{0, 4, 0xffffffff});
  CHECK(indices_in(list.part(0, 0, 4)) == Indices{3});
  CHECK(indices_in(list.part(0, 5, 95)) == Indices{5});
  CHECK(indices_in(list.part(0, 5, 96)) == Indices{5, 100});
  CHECK(indices_in(list.part(0, 101, 1000)).empty());
  CHECK(indices_in(list.part(1, 0, 1000)).empty());
  CHECK(indices_in(list.part(2, 4, 0xffffffff)) == Indices{4, 0xffffffff});
}

TEST_CASE("a list that begins anew keeps its memory") {
  PairList list;
  list.begin(DType::f32);
  add_run(list, Indices(1000, 7));
  const std::uint32_t* memory = list.indices();
  list.begin(DType::f32);
  CHECK(list.count() == 0);
  CHECK(list.runs() == 0);
  add_run(list, Indices(1000, 8));
  CHECK(list.indices() == memory);
}

}  // namespace pith::test
