// The bodies of the transport tests once more, through the recording decorators.
#include <thread>

#include "catch.hpp"
#include "core/kernel_args.hpp"
#include "transport/local/local.hpp"
#include "transport/ring_support.hpp"
#include "transport/trace.hpp"

namespace {

using namespace pith_test;
using pith::LocalHub;
using pith::LocalTransport;
using pith::Recorder;
using pith::Step;
using pith::Trace;
using pith::TracedTransport;

// Runs body(rank) in a thread for each of two ranks whose transport is traced, then look(recorder)
// there. The first failure's text, or nothing.
template <class Body, class Look>
std::string run_traced(const RingShape& shape, Body body, Look look) {
  auto hub = LocalHub::create(2, shape);
  if (!hub) return hub.error().message();
  std::array<std::string, 2> failures;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Recorder recorder(rank, 2, monotonic_ns);
        Trace trace;
        Rank self(rank, 2);
        LocalTransport transport(self.scheduler, self.mailbox, rank, *hub);
        TracedTransport traced(transport, trace);
        trace.add(self.comm, recorder);
        self.scheduler.observer = self.mailbox.observer = &trace;
        self.transport = &traced;
        body(self);
        look(recorder);
      } catch (const std::exception& failure) {
        failures[static_cast<std::size_t>(rank)] = failure.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures[0].empty() ? failures[1] : failures[0];
}

void check_times(const Recorder& recorder) {
  std::uint64_t last_ns = 0;
  std::uint64_t last_id = recorder.dropped();
  for (const Step& step : recorder.steps()) {
    must(step.id == last_id + 1, "a step is missing");
    must(step.begin_ns >= last_ns, "time runs backwards");
    must(!step.ended || step.end_ns >= step.begin_ns, "a step ends before it begins");
    last_ns = step.begin_ns;
    last_id = step.id;
  }
}

}  // namespace

TEST_CASE("trace: two traced threads, every path, tiny rings", "[trace]") {
  const auto body = [](Rank& self) { check_all(self, 300000); };
  CHECK(run_traced(tiny_shape(), body, check_times) == "");
}

TEST_CASE("trace: two traced threads, long messages, default rings", "[trace]") {
  const auto body = [](Rank& self) { check_all(self, std::size_t{8} << 20); };
  CHECK(run_traced(RingShape(), body, check_times) == "");
}

TEST_CASE("trace: what was sent and received is what is recorded", "[trace]") {
  const auto body = [](Rank& self) {
    const int peer = 1 - self.rank();
    for (std::uint32_t call = 1; call <= 5; ++call) {
      SendOp& sent = self.send(peer, call, pattern(call * 1000, call));
      ReceiveOp& got = self.receive(peer, call, 5000, call % 2 == 0);
      self.wait(got);
      got.receive.lease.release();
      self.wait(sent);
    }
  };
  const auto look = [](const Recorder& recorder) {
    check_times(recorder);
    std::size_t sends = 0;
    std::size_t receives = 0;
    for (const Step& step : recorder.steps()) {
      must(step.op == Step::Op::send || step.op == Step::Op::receive, "another operation");
      must(step.peer == 1 - recorder.rank(), "another peer");
      must(step.bytes == step.call * 1000, "another length");
      must(step.ended && !step.failed, "it has not ended well");
      ++(step.op == Step::Op::send ? sends : receives);
    }
    must(sends == 5 && receives == 5, "another number of messages");
  };
  CHECK(run_traced(tiny_shape(), body, look) == "");
}

TEST_CASE("trace: memory is bounded, the newest steps stay", "[trace]") {
  std::uint64_t now = 100;
  Recorder recorder(
      3, 4, [&now] { return now; }, 8);
  for (int i = 0; i < 20; ++i) {
    ++now;
    const std::uint64_t id = recorder.begin(Step(), {}, {});
    recorder.end(id, {});
  }
  recorder.end(1, {});  // long gone
  CHECK(recorder.dropped() == 12);
  const std::vector<Step> steps = recorder.steps();
  REQUIRE(steps.size() == 8);
  CHECK(steps.front().id == 13);
  CHECK(steps.back().id == 20);
  CHECK(steps.back().end_ns == 120);
}

TEST_CASE("trace: buffers have numbers and offsets, and readers wait for the last writers",
          "[trace]") {
  Recorder recorder(0, 1, [] { return std::uint64_t{1}; });
  std::array<std::byte, 100> first{};
  std::array<std::byte, 50> second{};
  recorder.name_buffer({first.data(), first.size()}, "send");
  recorder.name_buffer({second.data(), second.size()}, "scratch");
  recorder.name_buffer({first.data(), first.size()}, "send");

  const auto write = [&](std::size_t from, std::size_t bytes) {
    const pith::ConstBytes range{first.data() + from, bytes};
    const std::uint64_t id = recorder.begin(Step(), range, {});
    recorder.end(id, {&range, 1});
    return id;
  };
  const auto read = [&](std::size_t from, std::size_t bytes) {
    const pith::ConstBytes range{first.data() + from, bytes};
    return *recorder.find(recorder.begin(Step(), {second.data() + 7, 1}, {&range, 1}));
  };
  const std::uint64_t all = write(0, 100);
  const std::uint64_t left = write(0, 40);
  const std::uint64_t right = write(40, 20);
  CHECK(recorder.find(right)->place.buffer == 1);
  CHECK(recorder.find(right)->place.offset == 40);
  const Step covered = read(0, 10);
  CHECK(covered.place.buffer == 2);
  CHECK(covered.place.offset == 7);
  CHECK(covered.waits[0] == left);
  CHECK(covered.waits[1] == 0);
  const Step across = read(30, 70);
  CHECK(across.waits[0] == right);
  CHECK(across.waits[1] == left);
  CHECK(across.waits[2] == all);
  CHECK(across.waits[3] == 0);
}
