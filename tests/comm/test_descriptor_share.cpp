// How many descriptors the ranks of a process may count on.
#include "startup/descriptor_share.hpp"

#include <vector>

#include "tests/catch.hpp"

using namespace pith;

TEST_CASE("a process that has as many descriptors as were looked for has enough", "[descriptors]") {
  constexpr std::size_t looked_for = 4;
  const DescriptorShare share = DescriptorShare::of_this_process(looked_for, 0);
  const std::vector<DescriptorNeed> ranks(200, DescriptorNeed{share, 400, 2});
  const Expected<int> streams = streams_with_room(ranks, 8);
  REQUIRE(streams);
  CHECK(*streams == 8);
}

TEST_CASE("streams are fewer where descriptors are", "[descriptors]") {
  DescriptorShare share;
  share.left = 100;
  const Expected<int> streams = streams_with_room(std::vector{DescriptorNeed{share, 30, 10}}, 8);
  REQUIRE(streams);
  CHECK(*streams == 3);
  const Expected<int> none = streams_with_room(std::vector{DescriptorNeed{share, 95, 10}}, 8);
  CHECK(none.error().rank() == 0);
}
