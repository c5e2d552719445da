// The switch's model of links, in times that the test gives: exact, and without any device.
#include "catch.hpp"
#include "fabric.hpp"

using namespace netlab;

namespace {

constexpr std::uint64_t end_of_time = ~std::uint64_t{0};

Frame frame(std::size_t from, std::size_t to, std::size_t bytes) {
  Frame made;
  made.from = from;
  made.to = to;
  made.wire_bytes = bytes;
  return made;
}

struct Arrival {
  std::uint64_t at_ns;
  Frame frame;
};

// Everything that still arrives, as if the clock ticked at every event.
std::vector<Arrival> arrivals(Fabric& fabric) {
  std::vector<Arrival> all;
  while (const std::optional<std::uint64_t> at_ns = fabric.next_ns()) {
    if (std::optional<Frame> one = fabric.next(*at_ns)) all.push_back({*at_ns, std::move(*one)});
  }
  return all;
}

}  // namespace

TEST_CASE("without limits a frame arrives at once", "[fabric]") {
  Fabric fabric(2, 1);
  fabric.enter(frame(0, 1, 1000), 5);
  const auto got = fabric.next(5);
  REQUIRE(got);
  CHECK(got->to == 1);
  CHECK_FALSE(fabric.next(end_of_time));
  CHECK(fabric.port(0).sent_bytes == 1000);
  CHECK(fabric.port(1).received_bytes == 1000);
}

TEST_CASE("a link takes as long as its rate says, once for both ends", "[fabric]") {
  Fabric fabric(2, 1);
  for (std::size_t port = 0; port < 2; ++port) {
    fabric.port(port).up.bits_per_s = fabric.port(port).down.bits_per_s = 8e6;  // 1 byte a us
  }
  fabric.path(0, 1).delay_ns = 500'000;
  for (int i = 0; i < 3; ++i) fabric.enter(frame(0, 1, 1000), 0);
  const auto got = arrivals(fabric);
  REQUIRE(got.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(got[i].at_ns == (i + 1) * 1'000'000 + 500'000);
}

TEST_CASE("the slower of two links decides", "[fabric]") {
  Fabric fabric(2, 1);
  fabric.port(0).up.bits_per_s = 80e6;
  fabric.port(1).down.bits_per_s = 8e6;
  for (int i = 0; i < 4; ++i) fabric.enter(frame(0, 1, 1000), 0);
  const auto got = arrivals(fabric);
  REQUIRE(got.size() == 4);
  CHECK(got.back().at_ns == 4'000'000);
}

TEST_CASE("two senders share the receiver's link", "[fabric]") {
  Fabric fabric(3, 1);
  fabric.port(2).down.bits_per_s = 8e6;
  for (int i = 0; i < 5; ++i) {
    fabric.enter(frame(0, 2, 1000), 0);
    fabric.enter(frame(1, 2, 1000), 0);
  }
  const auto got = arrivals(fabric);
  REQUIRE(got.size() == 10);
  CHECK(got.back().at_ns == 10'000'000);
  CHECK(got[0].frame.from != got[1].frame.from);
}

TEST_CASE("the two directions of a link do not disturb each other", "[fabric]") {
  Fabric fabric(2, 1);
  for (std::size_t port = 0; port < 2; ++port) {
    fabric.port(port).up.bits_per_s = fabric.port(port).down.bits_per_s = 8e6;
  }
  fabric.enter(frame(0, 1, 1000), 0);
  fabric.enter(frame(1, 0, 1000), 0);
  for (const Arrival& arrival : arrivals(fabric)) CHECK(arrival.at_ns == 1'000'000);
}

TEST_CASE("a rate that changes counts from the next frame", "[fabric]") {
  Fabric fabric(2, 1);
  fabric.port(0).up.bits_per_s = 8e6;
  fabric.enter(frame(0, 1, 1000), 0);
  fabric.port(0).up.bits_per_s = 80e6;
  fabric.enter(frame(0, 1, 1000), 0);
  const auto got = arrivals(fabric);
  REQUIRE(got.size() == 2);
  CHECK(got[0].at_ns == 1'000'000);
  CHECK(got[1].at_ns == 1'100'000);
}

TEST_CASE("jitter varies the delay and keeps the order", "[fabric]") {
  Fabric fabric(2, 7);
  fabric.path(0, 1).delay_ns = 1'000'000;
  fabric.path(0, 1).jitter_ns = 400'000;
  constexpr std::size_t count = 1000;
  for (std::size_t i = 0; i < count; ++i) fabric.enter(frame(0, 1, i + 1), i * 300'000);
  const auto got = arrivals(fabric);
  REQUIRE(got.size() == count);
  std::uint64_t least = end_of_time;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(got[i].frame.wire_bytes == i + 1);
    const std::uint64_t delay = got[i].at_ns - i * 300'000;
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  CHECK(least >= 600'000);
  CHECK(most <= 1'400'000);
  CHECK(most - least > 200'000);
}

TEST_CASE("loss strikes the share it shall, and the same frames for the same seed", "[fabric]") {
  const auto survivors = [](std::uint64_t seed) {
    Fabric fabric(2, seed);
    fabric.path(0, 1).loss = 0.2;
    for (std::size_t i = 0; i < 10'000; ++i) fabric.enter(frame(0, 1, i + 1), i);
    for (std::size_t i = 0; i < 100; ++i) fabric.enter(frame(1, 0, 1), i);
    std::vector<std::size_t> sizes;
    std::size_t back = 0;
    for (const Arrival& arrival : arrivals(fabric)) {
      if (arrival.frame.to == 1) sizes.push_back(arrival.frame.wire_bytes);
      back += arrival.frame.to == 0;
    }
    CHECK(back == 100);  // loss is of one direction
    CHECK(fabric.lost == 10'000 - sizes.size());
    return sizes;
  };
  const auto first = survivors(3);
  CHECK(first.size() > 7'800);  // five standard deviations
  CHECK(first.size() < 8'200);
  CHECK(first == survivors(3));
  CHECK(first != survivors(4));
}

TEST_CASE("a full queue drops what comes", "[fabric]") {
  Fabric fabric(2, 1);
  fabric.queue_bytes = 10'000;
  fabric.port(0).up.bits_per_s = 8e6;
  for (int i = 0; i < 100; ++i) fabric.enter(frame(0, 1, 1000), 0);
  CHECK(arrivals(fabric).size() == 11);
  CHECK(fabric.dropped == 89);
}

TEST_CASE("a silent port sends and receives nothing, also not what is on its way", "[fabric]") {
  Fabric fabric(3, 1);
  fabric.path(0, 1).delay_ns = 1'000;
  fabric.enter(frame(0, 1, 1), 0);
  fabric.port(1).silent = true;
  fabric.enter(frame(1, 2, 1), 10);
  fabric.enter(frame(0, 2, 1), 10);
  auto got = arrivals(fabric);
  REQUIRE(got.size() == 1);
  CHECK(got[0].frame.to == 2);
  CHECK(fabric.lost == 2);
  fabric.port(1).silent = false;
  fabric.enter(frame(0, 1, 1), 20);
  CHECK(arrivals(fabric).size() == 1);
}
