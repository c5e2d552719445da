// The engine and its progress thread: who drives, who lets go, and who wakes whom. What is counted
// here without atomics is guarded by the token alone, which the thread sanitizer checks.
#include "core/engine.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/core/operations.hpp"

namespace pith::test {

namespace {

// False: it has not come true for so long that it never will.
template <class Condition>
bool comes_true(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

// Times that the calling thread has slept; to yield is no sleep.
long sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// A source whose turns and naps a test can follow from any thread.
class Source final : public Pollable {
 public:
  bool progress() override {
    if (on_turn) on_turn();
    turns.fetch_add(1);
    return false;
  }
  bool busy() const override { return true; }
  int descriptor() const override { return -1; }
  bool arm() override {
    naps.fetch_add(1);
    if (on_nap) on_nap();
    return true;
  }
  void disarm() override {}

  std::function<void()> on_turn;
  std::function<void()> on_nap;  // after the engine's last look at what was posted
  std::atomic<int> turns{0};
  std::atomic<int> naps{0};
};

void count_up(Work& work) { ++*static_cast<int*>(work.context); }

// What one thread posts, and what became of it.
struct Poster {
  static constexpr int count = 10'000;
  struct Numbered : Work {
    Poster* poster = nullptr;
    int number = 0;
  };

  Poster() : works(count) {
    for (int i = 0; i < count; ++i) {
      Numbered& work = works[static_cast<std::size_t>(i)];
      work.poster = this;
      work.number = i;
      work.run = [](Work& self) {
        const auto& numbered = static_cast<Numbered&>(self);
        numbered.poster->in_order &= numbered.number == numbered.poster->done;
        ++numbered.poster->done;
      };
    }
  }
  void post_to(Engine& engine) {
    for (Numbered& work : works) engine.post(work);
  }

  std::vector<Numbered> works;
  int done = 0;
  bool in_order = true;
};

}  // namespace

TEST_CASE("a turn that ran posted work had something to do", "[engine]") {
  Engine engine(1);
  int count = 0;
  Work work;
  work.run = count_up;
  work.context = &count;
  engine.own();
  CHECK_FALSE(engine.progress());
  std::thread([&] { engine.post(work); }).join();
  const std::uint32_t moves = engine.moves();
  CHECK(engine.progress());
  CHECK(count == 1);
  CHECK_FALSE(engine.progress());
  // Who looks whether anything gets on posts his look: that is not to be mistaken for it.
  CHECK(engine.moves() == moves);
  engine.disown();
}

TEST_CASE("posted work runs once, in each poster's order, whoever drives", "[engine]") {
  Engine engine(1);
  std::array<Poster, 4> posters;
  const auto all_done = [&] {
    int done = 0;
    for (const Poster& poster : posters) done += poster.done;
    return done == 4 * Poster::count;
  };
  std::vector<std::thread> threads;
  for (Poster& poster : posters) threads.emplace_back([&] { poster.post_to(engine); });
  for (int driver = 0; driver < 2; ++driver) {
    threads.emplace_back([&] {
      for (bool over = false; !over;) {
        engine.own();
        engine.progress();
        over = all_done();
        engine.disown();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine.own();
  for (const Poster& poster : posters) {
    CHECK(poster.done == Poster::count);
    CHECK(poster.in_order);
  }
  engine.disown();
}

TEST_CASE("work waits for a driver", "[engine]") {
  Engine engine(1);
  int runs = 0;
  Work work{count_up, &runs, nullptr};
  engine.post(work);
  CHECK(runs == 0);
  REQUIRE(engine.try_own());
  CHECK_FALSE(engine.try_own());
  engine.progress();
  CHECK(runs == 1);
  engine.post(work);  // it may be posted again once it has run
  engine.progress();
  engine.progress();
  CHECK(runs == 2);
  engine.disown();
}

TEST_CASE("whoever drives lets go for others", "[engine]") {
  for (const bool oversubscribed : {false, true}) {
    Engine engine(1);
    engine.set_oversubscribed(oversubscribed);
    Source source;
    engine.add(source);
    int visits = 0;
    constexpr int wanted = 50;
    std::thread driver([&] {
      engine.own();
      engine.drive_until([&] { return visits == 2 * wanted; });
      engine.disown();
    });
    std::array<std::thread, 2> visitors;
    for (std::thread& visitor : visitors) {
      visitor = std::thread([&] {
        for (int i = 0; i < wanted; ++i) {
          engine.own();
          ++visits;
          engine.disown();
        }
      });
    }
    for (std::thread& visitor : visitors) visitor.join();
    driver.join();
    CHECK(visits == 2 * wanted);
  }
}

// Without the doorbell the owner would sleep out every nap.
TEST_CASE("what is posted during a nap ends it", "[engine]") {
  Engine engine(1);
  engine.set_oversubscribed(true);  // naps soon
  Source source;
  engine.add(source);
  constexpr int wanted = 200;
  int runs = 0;
  Work work{count_up, &runs, nullptr};
  source.on_nap = [&] {
    if (source.naps.load() <= wanted) engine.post(work);
  };
  engine.own();
  const long slept = sleeps();
  engine.drive_until([&] { return runs == wanted; });
  CHECK(source.naps.load() >= wanted);
  CHECK(sleeps() - slept < wanted / 2);
  engine.disown();
}

TEST_CASE("a napping owner runs what other threads post", "[engine]") {
  Engine engine(1);
  engine.set_oversubscribed(true);
  Source source;
  engine.add(source);
  int runs = 0;
  std::vector<Work> works(50, Work{count_up, &runs, nullptr});
  const int wanted = static_cast<int>(works.size());
  bool napped = true;
  std::thread poster([&] {
    for (Work& work : works) {
      const int before = source.naps.load();
      napped &= comes_true([&] { return source.naps.load() > before; });
      engine.post(work);
    }
  });
  engine.own();
  engine.drive_until([&] { return runs == wanted; });
  engine.disown();
  poster.join();
  CHECK(napped);
}

TEST_CASE("an owner that naps makes way", "[engine]") {
  Engine engine(1);
  engine.set_oversubscribed(true);
  Source source;
  engine.add(source);
  bool over = false;
  std::thread owner([&] {
    engine.own();
    engine.drive_until([&] { return over; });
    engine.disown();
  });
  for (int i = 0; i < 20; ++i) {
    const int before = source.naps.load();
    CHECK(comes_true([&] { return source.naps.load() > before; }));
    engine.own();
    over = i == 19;
    engine.disown();
  }
  owner.join();
  CHECK(over);
}

// A rank that shares its core with others and does not know, as in containers of one machine.
TEST_CASE("an owner beside strangers naps before long", "[engine]") {
  cpu_set_t allowed, one;
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  CPU_ZERO(&one);
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  CPU_SET(core, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  std::atomic<bool> over{false};
  std::thread stranger([&] {
    while (!over) continue;
  });
  Source source;
  Engine engine(1);
  engine.add(source);
  constexpr int wanted = 20;
  const auto start = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::steady_clock::now() - start > std::chrono::seconds(2);
  };
  engine.own();
  engine.drive_until([&] { return source.naps.load() >= wanted || late(); });
  engine.disown();
  over = true;
  stranger.join();
  CHECK(source.naps.load() >= wanted);
  CHECK(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
}

TEST_CASE("background calls are driven without an owner, others are not", "[engine][background]") {
  Engine engine(1);
  Source source;
  int turns = 0;  // as the token guards it
  source.on_turn = [&] { ++turns; };
  engine.add(source);
  int runs = 0;
  Work work{count_up, &runs, nullptr};
  REQUIRE_FALSE(engine.join_background());
  REQUIRE_FALSE(engine.join_background());  // as often as one likes
  CHECK_FALSE(engine.has_background());
  engine.background_begins();
  CHECK(engine.has_background());
  engine.post(work);
  const int before = source.turns.load();
  CHECK(comes_true([&] { return source.turns.load() > before + 1; }));
  engine.own();
  CHECK(runs == 1);
  CHECK(turns == source.turns.load());
  engine.background_ends();
  engine.post(work);
  engine.disown();
  CHECK_FALSE(engine.has_background());
  // The thread may be in the middle of its last turn, for which it needs the token.
  engine.leave_background();
  const int last = source.turns.load();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(source.turns.load() == last);
  engine.own();
  engine.progress();
  CHECK(runs == 2);
  engine.disown();
}

TEST_CASE("the progress thread makes way for a blocking caller", "[engine][background]") {
  Source source;  // dies after the engine, of which the progress thread may be in a last turn
  Engine engine(1);
  engine.set_oversubscribed(true);  // naps soon, with the token
  int turns = 0;
  source.on_turn = [&] { ++turns; };
  engine.add(source);
  REQUIRE_FALSE(engine.join_background());
  engine.background_begins();
  for (int i = 0; i < 20; ++i) {
    const int before = source.naps.load();
    CHECK(comes_true([&] { return source.naps.load() > before; }));
    engine.own();
    const int seen = turns;
    int looks = 0;
    engine.drive_until([&] { return ++looks == 20; });
    CHECK(turns >= seen + 19);  // more where the other thread wanted its turns
    engine.disown();
  }
  engine.background_ends();
}

TEST_CASE("engines come and go while the progress thread drives others", "[engine][background]") {
  Source source;
  Engine stays(1);
  stays.add(source);
  REQUIRE_FALSE(stays.join_background());
  stays.background_begins();
  constexpr int rounds = 20;
  std::atomic<int> good{0};
  std::array<std::thread, 2> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&good] {
      for (int round = 0; round < rounds; ++round) {
        Source driven;
        int turns = 0;
        driven.on_turn = [&turns] { ++turns; };
        Engine engine(1);
        engine.add(driven);
        if (engine.join_background()) return;
        engine.background_begins();
        if (!comes_true([&] { return driven.turns.load() > 3; })) return;
        engine.leave_background();
        const int last = std::exchange(turns, 0);  // nobody drives it any more
        good += last == driven.turns.load();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good.load() == 2 * rounds);
  const int before = source.turns.load();
  CHECK(comes_true([&] { return source.turns.load() > before; }));
  stays.background_ends();
}

TEST_CASE("a coroutine goes on where its engine is driven", "[engine]") {
  struct Frames {
    FrameArena& arena;
    FrameArena& frame_arena() const { return arena; }
  };
  struct Waiting {
    static Task<Error> run(Frames&, Pause& pause) { co_return co_await Paused(pause); }
  };
  Engine engine(1);
  Frames frames{engine.arena()};
  Pause pause;
  Task<Error> task = Waiting::run(frames, pause);
  struct Resume {
    Engine& engine;
    Pause& pause;
  } context{engine, pause};
  Work resume{[](Work& work) {
                const auto& to = *static_cast<Resume*>(work.context);
                to.engine.scheduler().make_ready(to.pause.waiter);
              },
              &context, nullptr};
  const std::uint32_t moves = engine.moves();
  engine.own();
  engine.scheduler().make_ready(task.handle());
  engine.progress();
  CHECK_FALSE(task.done());
  std::thread poster([&] { engine.post(resume); });
  engine.drive_until([&] { return task.done(); });
  poster.join();
  CHECK_FALSE(task.take());
  task = {};
  CHECK(engine.arena().live() == 0);
  engine.disown();
  CHECK(engine.moves() > moves);
}

}  // namespace pith::test
