#include "api/recent_buffers.hpp"
#include "catch.hpp"

namespace pith::test {

TEST_CASE("buffers are recent as a pair, and within a tick", "[comm]") {
  api::RecentBuffers recent;
  const int send = 0;
  const int recv = 0;
  const std::uint64_t tick = api::last_tick_ns();
  CHECK_FALSE(recent.has(nullptr, nullptr, tick));
  recent.add(&send, &recv, tick);
  CHECK(recent.has(&send, &recv, tick));
  CHECK_FALSE(recent.has(&recv, &send, tick));
  CHECK_FALSE(recent.has(&send, &send, tick));
  CHECK_FALSE(recent.has(&send, &recv, tick + 1));
}

}  // namespace pith::test
