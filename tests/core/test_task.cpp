#include "tests/catch.hpp"
#include "tests/core/operations.hpp"

namespace pith::test {

namespace {

Error failure(const char* what) { return {Code::internal, what}; }

Task<Error> ends_at_once(Strand&, Error error) { co_return error; }

Task<Error> waits(Strand&, Pause& pause) { co_return co_await Paused(pause); }

Task<Expected<int>> count_down(Strand& strand, int n) {
  if (n == 0) co_return 0;
  Expected<int> rest = co_await count_down(strand, n - 1);
  co_return 1 + *rest;
}

Task<Error> joins(Strand&, std::vector<Task<Error>>& children, int& resumed) {
  Error error = co_await when_all(children);
  ++resumed;
  co_return error;
}

Task<Error> throws(Strand&) {
  throw std::bad_alloc();
  co_return Error();
}

}  // namespace

TEST_CASE("a task starts when it is awaited and hands its value on", "[task]") {
  Strand strand;
  {
    Task<Expected<int>> task = count_down(strand, 50);
    CHECK(strand.arena.live() == 1);
    CHECK(!task.done());
    task.handle().resume();
    REQUIRE(task.done());
    CHECK(*task.take() == 50);
  }
  CHECK(strand.arena.live() == 0);
}

TEST_CASE("a task that is moved or never started gives its frame back", "[task]") {
  Strand strand;
  {
    Task<Expected<int>> task = count_down(strand, 3);
    Task<Expected<int>> other = std::move(task);
    CHECK(!task);
    other = count_down(strand, 4);
    other.handle().resume();
    CHECK(*other.take() == 4);
  }
  CHECK(strand.arena.live() == 0);
}

TEST_CASE("when_all of tasks that never suspend does not suspend", "[task]") {
  Strand strand;
  int resumed = 0;
  std::vector<Task<Error>> children;
  for (int i = 0; i < 3; ++i) children.push_back(ends_at_once(strand, {}));
  Task<Error> task = joins(strand, children, resumed);
  task.handle().resume();
  REQUIRE(task.done());
  CHECK(!task.result());
  CHECK(resumed == 1);
}

TEST_CASE("when_all of nothing ends at once", "[task]") {
  Strand strand;
  int resumed = 0;
  std::vector<Task<Error>> children;
  Task<Error> task = joins(strand, children, resumed);
  task.handle().resume();
  REQUIRE(task.done());
  CHECK(!task.result());
}

TEST_CASE("when_all waits for every child, also after an error", "[task]") {
  Strand strand;
  int resumed = 0;
  std::array<Pause, 2> pauses;
  std::vector<Task<Error>> children;
  children.push_back(waits(strand, pauses[0]));
  children.push_back(ends_at_once(strand, failure("second")));
  children.push_back(waits(strand, pauses[1]));
  Task<Error> task = joins(strand, children, resumed);
  task.handle().resume();
  CHECK(!task.done());
  pauses[1].result = failure("third");
  pauses[1].waiter.resume();
  CHECK(!task.done());
  CHECK(resumed == 0);
  pauses[0].waiter.resume();
  REQUIRE(task.done());
  CHECK(resumed == 1);
  // The first in the order of the children, not of time.
  CHECK(std::string(task.result().message()) == "second");
}

TEST_CASE("an exception becomes an error", "[task]") {
  Strand strand;
  Task<Error> task = throws(strand);
  task.handle().resume();
  REQUIRE(task.done());
  CHECK(task.result().code() == Code::system);
}

TEST_CASE("the scheduler keeps its order while it grows", "[scheduler]") {
  Strand strand;
  std::vector<Pause> pauses(1000);
  std::vector<Task<Error>> tasks;
  for (Pause& pause : pauses) {
    tasks.push_back(waits(strand, pause));
    strand.scheduler.make_ready(tasks.back().handle());
  }
  CHECK(strand.scheduler.run_one());
  CHECK(pauses[0].waiter);
  CHECK(!pauses[1].waiter);
  strand.run();
  CHECK(strand.scheduler.idle());
  CHECK(!strand.scheduler.run_one());
  for (Pause& pause : pauses) strand.scheduler.make_ready(pause.waiter);
  strand.run();
  for (const Task<Error>& task : tasks) CHECK(task.done());
}

TEST_CASE("the last of several operations resumes their waiter", "[scheduler]") {
  Strand strand;
  Pause pause;
  Task<Error> task = waits(strand, pause);
  task.handle().resume();
  int remaining = 2;
  Operation first;
  Operation second;
  first.remaining = second.remaining = &remaining;
  first.waiter = second.waiter = pause.waiter;
  strand.scheduler.complete(first);
  CHECK(strand.scheduler.idle());
  strand.scheduler.complete(second);
  strand.run();
  CHECK(task.done());
}

}  // namespace pith::test
