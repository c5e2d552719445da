// Threads with a table of descriptors of their own, in processes of their own.
#include "transport/descriptor_table.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <latch>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "core/clock.hpp"
#include "transport/two_ranks.hpp"

namespace {

using namespace pith_test;
using pith::Descriptor;
using pith::leave_descriptor_table;
using pith::listen_on;

constexpr const char* refused = "refused";
constexpr std::uint64_t second = 1'000'000'000;

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

std::vector<Descriptor> events(int count) {
  std::vector<Descriptor> all;
  for (int i = 0; i < count; ++i) {
    all.emplace_back(eventfd(0, EFD_CLOEXEC));
    must(static_cast<bool>(all.back()), "no descriptor");
  }
  return all;
}

std::set<int> numbers_of(const std::vector<Descriptor>& all) {
  std::set<int> numbers;
  for (const Descriptor& one : all) numbers.insert(one.get());
  return numbers;
}

// body(meanwhile) on a thread that has left the table; meanwhile() lets the first thread act.
std::string apart(std::span<const int> kept, const std::function<void()>& before,
                  const std::function<void()>& meanwhile, const std::function<void()>& after) {
  std::latch ready(1);
  std::latch acted(1);
  bool left = false;
  std::string failure;
  std::thread thread([&] {
    failure = guarded([&] {
      left = leave_descriptor_table(kept);
      if (left) before();
    });
    ready.count_down();
    acted.wait();
    if (left && failure.empty()) failure = guarded(after);
  });
  ready.wait();
  const std::string own = guarded([&] {
    if (left) meanwhile();
  });
  acted.count_down();
  thread.join();
  if (!left && failure.empty()) return refused;
  return failure + own;
}

void check(const std::function<std::string()>& body) {
  const std::string result = told_by_child(body);
  if (result == refused) {
    WARN("skipped: a thread may not leave its table of descriptors here");
    return;
  }
  CHECK(result == "");
}

}  // namespace

TEST_CASE("a table of one's own has all the room that the limit gives", "[descriptors]") {
  check([]() -> std::string {
    const rlimit few = {64, 64};
    must(setrlimit(RLIMIT_NOFILE, &few) == 0, "no limit");
    const std::vector<Descriptor> ours = events(40);
    std::vector<Descriptor> theirs;
    return apart(
        {}, [&] { theirs = events(60); },
        [&] {
          for (const Descriptor& one : ours) must(is_open(one.get()), "closed by another");
          must(events(10).size() == 10, "no room");
        },
        [&] { theirs.clear(); });
  });
}

// Else the child would close what has the same number in its own table.
TEST_CASE("a forked child closes nothing that another table has", "[descriptors]") {
  check([]() -> std::string {
    std::vector<int> ours;
    for (int i = 0; i < 20; ++i) ours.push_back(dup(STDERR_FILENO));
    std::vector<Descriptor> theirs;
    const auto fork_and_look = [&] {
      const std::set<int> numbers = numbers_of(theirs);
      must(numbers.contains(ours.back()), "no number is in both tables");
      const pid_t child = fork();
      if (child == 0) _exit(std::ranges::all_of(ours, is_open) ? 0 : 1);
      int status = 0;
      must(waitpid(child, &status, 0) == child && status == 0, "the child has closed others");
    };
    return apart(
        {}, [&] { theirs = events(60); }, fork_and_look, [&] { theirs.clear(); });
  });
}

TEST_CASE("a listener is handed over to a thread with its own table", "[descriptors]") {
  check([]() -> std::string {
    auto listener = listen_on("127.0.0.1");
    must(static_cast<bool>(listener), "no listener");
    const int number = listener->get();
    const auto address = pith::local_address(number);
    must(static_cast<bool>(address), "no address");
    const std::array kept = {number};
    const auto call = [&] {
      return static_cast<bool>(pith::connect_to(*address, pith::monotonic_ns() + second));
    };
    const auto give = [&] {
      pith::hand_over(*listener);
      must(!is_open(number) && listener->get() == number, "not handed over");
      must(call(), "nobody listens");
    };
    const auto end = [&] {
      must(is_open(number), "closed in the other table");
      listener->reset();
      must(!is_open(number) && !call(), "it still listens");
    };
    return apart(
        kept, [] {}, give, end);
  });
}
