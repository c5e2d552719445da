// How many descriptors the ranks of a process may count on.
#include "startup/descriptor_share.hpp"

#include <vector>

#include "tests/catch.hpp"

using namespace pith;

TEST_CASE("a process that has as many descriptors as were looked for has enough", "[descriptors]") {
  constexpr std::size_t looked_for = 4;
  const DescriptorShare share = DescriptorShare::of_this_process(looked_for, 0);
  const std::vector<DescriptorNeed> ranks(200, DescriptorNeed{share, 400, 2});
  const Expected<PairStreams> streams = streams_with_room(ranks, 8, false);
  REQUIRE(streams);
  CHECK(streams->at_start == 8);
}

TEST_CASE("streams are fewer where descriptors are", "[descriptors]") {
  DescriptorShare share;
  share.left = 100;
  const Expected<PairStreams> streams =
      streams_with_room(std::vector{DescriptorNeed{share, 30, 10}}, 8, false);
  REQUIRE(streams);
  CHECK(streams->at_start == 3);
  const Expected<PairStreams> none =
      streams_with_room(std::vector{DescriptorNeed{share, 95, 10}}, 8, false);
  CHECK(none.error().rank() == 0);
}

TEST_CASE("pairs connect on demand where not all have room, or if they are to", "[descriptors]") {
  DescriptorShare share;
  share.left = 1000;
  const auto with = [&](std::uint64_t neighbours, std::uint64_t others, bool on_demand) {
    const DescriptorNeed need{share, neighbours, 0, others};
    return *streams_with_room(std::vector{need}, 4, on_demand);
  };
  CHECK_FALSE(with(20, 230, false).on_demand);
  CHECK(with(20, 230, false).later == 4);
  CHECK(with(20, 980, false).at_start == 1);
  CHECK(with(20, 981, false).on_demand);
  CHECK(with(20, 981, false).at_start == 4);
  CHECK(with(20, 981, false).later == 1);
  CHECK(with(20, 200, true).later == 4);
  CHECK(with(20, 200, true).on_demand);
  CHECK(with(20, 250, true).later == 3);  // 68 are left for handshakes
  CHECK(with(20, 250, true).at_start == 4);
  CHECK(with(300, 4000, false).at_start == 1);
  DescriptorNeed none{share, 1001, 0, 0};
  CHECK_FALSE(streams_with_room(std::vector{none}, 4, false));
}
