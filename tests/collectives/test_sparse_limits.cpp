// Lists and sums too long for one message.
#include "collectives/value_sum.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// Tensors of these sizes without any memory.
Code check_of(const char* spec, const std::vector<std::size_t>& counts, int ranks) {
  std::vector<std::unique_ptr<Compressor>> compressors;
  std::vector<CompressedTensor> tensors;
  for (const std::size_t count : counts) {
    compressors.push_back(std::move(*Compressor::create(spec)));
    tensors.emplace_back();
    tensors.back().compressor = compressors.back().get();
    tensors.back().count = count;
  }
  return check_lists(tensors, ranks).code();
}

}  // namespace

TEST_CASE("lists that no message holds are refused", "[sparse][limits]") {
  constexpr std::size_t pairs = std::size_t{1} << 30;
  constexpr std::size_t largest = (std::size_t{1} << 32) - 1;
  constexpr Code refused = Code::invalid_argument;
  CHECK(check_of("topk:density=1", {pairs - 1}, 2) == Code::success);
  CHECK(check_of("topk:density=1", {pairs}, 2) == refused);
  CHECK(check_of("topk:density=1", {pairs / 2, pairs / 2}, 2) == refused);
  CHECK(check_of("topk:density=1,exchange=ring", {pairs / 2, pairs / 2}, 2) == Code::success);
  CHECK(check_of("topk:density=0.2", {largest}, 17) == Code::success);
  CHECK(check_of("topk:density=0.2,exchange=recursive-doubling", {largest}, 2) == refused);
  CHECK(check_of("topk:density=0.2,exchange=split", {largest}, 17) == Code::success);
  CHECK(check_of("topk:density=0.2,exchange=split", {largest}, 2) == refused);
  CHECK(check_of("ar-topk:density=0.3", {largest}, 4) == refused);
  CHECK(check_of("exdyna", {largest, largest, largest}, 4) == Code::success);
  CHECK(check_of("exdyna", std::vector<std::size_t>(5, largest), 4) == refused);
  CHECK(check_of("none", {largest}, 4) == Code::success);
}

TEST_CASE("a sum of values goes in as many messages as it needs", "[sparse][limits]") {
  for (const std::size_t count : {1, 2, 7, 64, 65, 1000}) {
    for (int ranks = 2; ranks <= 5; ++ranks) {
      SimConfig config;
      config.ranks = ranks;
      World world(config);
      std::vector<std::vector<float>> values(static_cast<std::size_t>(ranks));
      for (auto& own : values) {
        for (std::size_t i = 0; i < count; ++i) {
          own.push_back(static_cast<float>(i + static_cast<std::size_t>(&own - values.data())));
        }
      }
      Traffic traffic;
      const ValuePart part{nullptr, nullptr, count};
      for (const Error& error : run_ranks(world, [&](Call&call, int rank) {
             ValueSum sum;
             sum.values =
                 reinterpret_cast<std::byte*>(values[static_cast<std::size_t>(rank)].data());
             sum.count = count;
             sum.parts = std::span(&part, 1);
             sum.most_message_bytes = 64;
             return sum_values(call, sum, traffic);
           })) {
        REQUIRE(error.code() == Code::success);
      }
      for (const auto& own : values) {
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t p = values.size();
          CHECK(own[i] == static_cast<float>(p * i + p * (p - 1) / 2));
        }
      }
    }
  }
}

}  // namespace pith::test
