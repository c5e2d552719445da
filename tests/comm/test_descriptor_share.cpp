// How many descriptors the ranks of a process may count on.
#include "startup/descriptor_share.hpp"

#include <vector>

#include "tests/catch.hpp"

using namespace pith;

TEST_CASE("a process that has as many descriptors as were looked for has enough", "[descriptors]") {
  constexpr std::size_t looked_for = 4;
  const DescriptorShare share = DescriptorShare::of_this_process(looked_for, 0);
  const std::vector<DescriptorNeed> ranks(200, DescriptorNeed{share, 400, 2});
  const Expected<PairStreams> streams = streams_with_room(ranks, 8);
  REQUIRE(streams);
  CHECK(streams->at_start == 8);
}

TEST_CASE("streams are fewer where descriptors are", "[descriptors]") {
  DescriptorShare share;
  share.left = 100;
  const Expected<PairStreams> streams =
      streams_with_room(std::vector{DescriptorNeed{share, 30, 10}}, 8);
  REQUIRE(streams);
  CHECK(streams->at_start == 3);
  const Expected<PairStreams> none =
      streams_with_room(std::vector{DescriptorNeed{share, 95, 10}}, 8);
  CHECK(none.error().rank() == 0);
}

TEST_CASE("streams of pairs that connect later have room, too", "[descriptors]") {
  DescriptorShare share;
  share.left = 1000;
  const auto with = [&](std::uint64_t at_start, std::uint64_t later) {
    return *streams_with_room(std::vector{DescriptorNeed{share, at_start, 0, later}}, 4);
  };
  CHECK(with(20, 100).at_start == 4);
  CHECK(with(20, 100).later == 4);
  CHECK(with(20, 300).at_start == 4);  // 3 for each of 320 pairs, and what is left
  CHECK(with(20, 300).later == 3);
  CHECK(with(200, 4000).at_start == 2);  // not even one each
  CHECK(with(200, 4000).later == 1);
}
