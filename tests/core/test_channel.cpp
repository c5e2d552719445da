#include "core/channel.hpp"
#include "tests/catch.hpp"
#include "tests/core/operations.hpp"

namespace pith::test {

namespace {

using Numbers = Channel<int, 2>;

Task<Error> produce(Strand&, Numbers& channel, int n, int& pushed, bool close) {
  for (int i = 0; i < n; ++i) {
    const bool open = co_await channel.push(i);
    if (!open) co_return Error(Code::remote, "closed");
    ++pushed;
  }
  if (close) channel.close();
  co_return Error();
}

Task<Error> consume(Strand&, Numbers& channel, std::vector<int>& out, int limit) {
  while (static_cast<int>(out.size()) < limit) {
    std::optional<int> value = co_await channel.pop();
    if (!value) co_return Error(Code::remote, "ended");
    out.push_back(*value);
  }
  co_return Error();
}

}  // namespace

TEST_CASE("a channel holds its producer back and keeps the order", "[channel]") {
  Strand strand;
  Numbers channel(strand.scheduler);
  int pushed = 0;
  std::vector<int> out;
  Task<Error> producer = produce(strand, channel, 10, pushed, true);
  producer.handle().resume();
  CHECK(pushed == 2);
  Task<Error> consumer = consume(strand, channel, out, 100);
  consumer.handle().resume();
  strand.run();
  REQUIRE(producer.done());
  REQUIRE(consumer.done());
  CHECK(!producer.result());
  // What was in the queue at its end is not lost.
  CHECK(out == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(std::string(consumer.result().message()) == "ended");
}

TEST_CASE("closing wakes a waiting consumer", "[channel]") {
  Strand strand;
  Numbers channel(strand.scheduler);
  std::vector<int> out;
  Task<Error> consumer = consume(strand, channel, out, 1);
  consumer.handle().resume();
  CHECK(!consumer.done());
  channel.close();
  strand.run();
  REQUIRE(consumer.done());
  CHECK(consumer.result());
}

TEST_CASE("closing wakes a waiting producer, and later pushes fail", "[channel]") {
  Strand strand;
  Numbers channel(strand.scheduler);
  int pushed = 0;
  Task<Error> producer = produce(strand, channel, 3, pushed, false);
  producer.handle().resume();
  CHECK(!producer.done());
  channel.close();
  channel.close();
  strand.run();
  REQUIRE(producer.done());
  CHECK(producer.result());
  CHECK(pushed == 2);

  std::vector<int> out;
  Task<Error> consumer = consume(strand, channel, out, 3);
  consumer.handle().resume();
  REQUIRE(consumer.done());
  CHECK(out == std::vector<int>{0, 1});
}

TEST_CASE("a consumer that is ahead gets each value", "[channel]") {
  Strand strand;
  Numbers channel(strand.scheduler);
  int pushed = 0;
  std::vector<int> out;
  Task<Error> consumer = consume(strand, channel, out, 5);
  consumer.handle().resume();
  Task<Error> producer = produce(strand, channel, 5, pushed, false);
  producer.handle().resume();
  strand.run();
  REQUIRE(consumer.done());
  CHECK(out.size() == 5);
}

}  // namespace pith::test
