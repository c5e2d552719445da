// The links, the ports and the wires of the simulator.
#include <cstring>

#include "tests/catch.hpp"
#include "tests/sim/programs.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

namespace {

constexpr double alpha = 3e-6;
constexpr double beta = 2e-9;

SimConfig two_ranks() {
  SimConfig config;
  config.ranks = 2;
  config.link = {alpha, beta};
  return config;
}

bool none(const std::vector<Error>& errors) {
  return std::ranges::none_of(errors, [](const Error& error) { return bool(error); });
}

Task<Error> send_many(Call& call, int to, std::uint32_t messages, Bytes data) {
  for (std::uint32_t step = 0; step < messages; ++step) {
    Error error = co_await call.send(to, 0, step, data);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> recv_many(Call& call, int from, std::uint32_t messages, Bytes data) {
  for (std::uint32_t step = 0; step < messages; ++step) {
    Error error = co_await call.recv(from, 0, step, data);
    if (error) co_return error;
  }
  co_return Error();
}

// Rank 0 sends, rank 1 receives, in a world of two.
std::vector<Error> stream(World& world, std::uint32_t messages, std::vector<std::byte>& out,
                          std::vector<std::byte>& in) {
  return run_ranks(world, [&](Call& call, int rank) {
    return rank == 0 ? send_many(call, 1, messages, bytes_of(out))
                     : recv_many(call, 0, messages, bytes_of(in));
  });
}

}  // namespace

TEST_CASE("a message takes alpha + beta * bytes", "[sim]") {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{1} << 20}) {
    World world(two_ranks());
    std::vector<std::byte> out(bytes, std::byte{7});
    std::vector<std::byte> in(bytes);
    REQUIRE(none(stream(world, 1, out, in)));
    CHECK(out == in);
    const double sent = beta * double(bytes);
    CHECK(sim_time(world.ended_s(0)) == sim_time(sent));  // as soon as it has left
    CHECK(sim_time(world.ended_s(1)) == sim_time(alpha + sent));
    CHECK(world.leaks() == "");
  }
}

TEST_CASE("messages of one sender follow each other out of its port", "[sim]") {
  World world(two_ranks());
  std::vector<std::byte> data(1000);
  std::vector<std::byte> into(1000);
  REQUIRE(none(stream(world, 5, data, into)));
  CHECK(sim_time(world.elapsed_s()) == sim_time(alpha + 5 * 1000 * beta));
}

TEST_CASE("where senders meet, the port of the receiver serves one after the other", "[sim]") {
  SimConfig config = two_ranks();
  config.ranks = 4;
  World world(config);
  std::vector<std::byte> data(1000);
  std::vector<std::byte> into(1000);
  auto task = [&](Call& call, int rank) {
    if (rank != 0) return send_many(call, 0, 1, bytes_of(data));
    return recv_many(call, 3, 1, bytes_of(into));
  };
  REQUIRE(none(run_ranks(world, task)));
  CHECK(sim_time(world.elapsed_s()) == sim_time(alpha + 3 * 1000 * beta));
}

TEST_CASE("ranks of a host share its uplink, and have their own ports inside", "[sim]") {
  SimConfig config = two_ranks();
  config.ranks = 4;
  std::vector<std::byte> data(1000);
  std::vector<std::byte> into(1000);
  // Ranks 0 and 1 send, to ranks 2 and 3.
  const auto seconds = [&] {
    World world(config);
    auto task = [&](Call& call, int rank) {
      return rank < 2 ? send_many(call, rank + 2, 1, bytes_of(data))
                      : recv_many(call, rank - 2, 1, bytes_of(into));
    };
    REQUIRE(none(run_ranks(world, task)));
    return sim_time(world.elapsed_s());
  };
  CHECK(seconds() == sim_time(alpha + 1000 * beta));
  config.uplink_of = [](int rank) { return rank / 2; };  // two ranks a host
  CHECK(seconds() == sim_time(alpha + 2 * 1000 * beta));
  config.uplink_of = [](int) { return 0; };  // one host
  CHECK(seconds() == sim_time(alpha + 1000 * beta));
}

TEST_CASE("both directions of a link are used at once", "[sim]") {
  World world(two_ranks());
  Allreduce program(doubling, 2, 1000);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  REQUIRE(none(run_ranks(world, task)));
  CHECK(sim_time(world.elapsed_s()) == sim_time(alpha + 8000 * beta));
}

TEST_CASE("pairs of ranks have links of their own", "[sim]") {
  SimConfig config = two_ranks();
  config.ranks = 3;
  config.link_of = [](int from, int to) { return SimLink{1e-6 * (10 * from + to), 0}; };
  World world(config);
  std::vector<std::byte> data(8);
  std::vector<std::byte> into(8);
  auto task = [&](Call& call, int rank) {
    if (rank == 2) return send_many(call, 1, 1, bytes_of(data));
    return recv_many(call, 2, rank == 1 ? 1 : 0, bytes_of(into));
  };
  REQUIRE(none(run_ranks(world, task)));
  CHECK(sim_time(world.elapsed_s()) == sim_time(21e-6));
}

TEST_CASE("bandwidth changes while a message is on its way", "[sim]") {
  SimConfig config = two_ranks();
  config.link = {0, 1e-9};
  config.bandwidth = {{1e-6, 0.5}, {3e-6, 0}, {5e-6, 2}};
  World world(config);
  std::vector<std::byte> data(4000);
  std::vector<std::byte> into(4000);
  REQUIRE(none(stream(world, 1, data, into)));
  // 1000 bytes in the first microsecond, 1000 in the next two, a pause, 2000 in the last.
  CHECK(sim_time(world.elapsed_s()) == sim_time(6e-6));
}

TEST_CASE("jitter repeats with its seed and never reorders a pair", "[sim]") {
  auto run = [](std::uint64_t seed) {
    SimConfig config = two_ranks();
    config.ranks = 8;
    config.seed = seed;
    config.jitter_s = 1e-5;
    World world(config);
    Allreduce program(ring, 8, 64);
    auto task = [&](Call& call, int rank) { return program.start(call, rank); };
    REQUIRE(none(run_ranks(world, task)));
    return sim_time(world.elapsed_s());
  };
  const SimTime first = run(1);
  CHECK(first > sim_time(14 * (alpha + 64 * beta)));
  CHECK(first == run(1));
  CHECK(first != run(2));
}

TEST_CASE("kernels take time on their rank's core", "[sim]") {
  for (const bool late : {false, true}) {
    SimConfig config = two_ranks();
    config.ranks = 4;
    config.gamma_s_per_byte = 5e-9;
    config.kernel_s = 1e-7;
    config.late_kernels = late;
    World world(config);
    Allreduce program(ring, 4, 400);
    auto task = [&](Call& call, int rank) { return program.start(call, rank); };
    const std::vector<Error> errors = run_ranks(world, task);
    INFO(errors[0].message());
    REQUIRE(none(errors));
    const double cost = 6 * (alpha + 800 * beta) + 3 * (800 * config.gamma_s_per_byte + 1e-7);
    CHECK(sim_time(world.elapsed_s()) == sim_time(cost));
    CHECK(world.leaks() == "");
  }
}

namespace {

Task<Error> forgets_a_fence(Call& call, Bytes data, Bytes copy) {
  call.run<ReduceKernel>({copy.data, data.data, data.data, 1, DType::u64, Op::sum});
  if (call.rank() == 0) co_return co_await call.send(1, 0, 0, copy);
  co_return co_await call.recv(0, 0, 0, data);
}

}  // namespace

TEST_CASE("late kernels show a missing fence", "[sim]") {
  SimConfig config = two_ranks();
  config.kernel_s = 1e-6;
  config.late_kernels = true;
  World world(config);
  std::vector<std::uint64_t> data{21};
  std::vector<std::uint64_t> copy{0};
  std::vector<std::uint64_t> other{0};
  std::vector<std::uint64_t> other_copy{0};
  auto task = [&](Call& call, int rank) {
    return rank == 0 ? forgets_a_fence(call, bytes_of(data), bytes_of(copy))
                     : forgets_a_fence(call, bytes_of(other), bytes_of(other_copy));
  };
  REQUIRE(none(run_ranks(world, task)));
  CHECK(copy[0] == 42);
  CHECK(other[0] == 0);  // what was sent is what lay there before the kernel
}

TEST_CASE("a sender far ahead is held back", "[sim]") {
  constexpr std::size_t bytes = std::size_t{64} << 10;
  constexpr std::uint32_t messages = 200;
  SimConfig config = two_ranks();
  config.wire_bytes = 4 * bytes;
  World world(config);
  world.start_s = [](int rank) { return rank == 1 ? 1.0 : 0.0; };
  std::vector<std::byte> data(bytes, std::byte{1});
  std::vector<std::byte> into(bytes);
  world.sim().after(0.5, [&] {
    // The receiver's backlog of 1 MiB and the wire are full, the rest waits.
    CHECK(!world.ended(0));
    CHECK(world.sim().deadlock_report() ==
          "rank 0 waits for room to send to rank 1, call 1 lane 0 step 19\n");
  });
  REQUIRE(none(stream(world, messages, data, into)));
  CHECK(world.ended_s(0) > 1.0);
  CHECK(data == into);
  CHECK(world.leaks() == "");
}

TEST_CASE("an awaited message is accepted behind a full backlog", "[sim]") {
  SimConfig config = two_ranks();
  World world(config);
  world.mailbox(1).backlog_limit = 2000;
  std::vector<std::byte> data(1000);
  std::vector<std::byte> into(1000);
  auto send_all = [&](Call& call) { return send_many(call, 1, 50, bytes_of(data)); };
  auto task = [&](Call& call, int rank) {
    if (rank == 0) return send_all(call);
    // Only the last: all others must be taken before it.
    struct Last {
      static Task<Error> run(Call& c, Bytes b) { co_return co_await c.recv(0, 0, 49, b); }
    };
    return Last::run(call, bytes_of(into));
  };
  REQUIRE(none(run_ranks(world, task)));
  CHECK(world.leaks() == "");
}

TEST_CASE("a dead rank ends the call of the others with its name", "[sim]") {
  SimConfig config = two_ranks();
  config.ranks = 8;
  config.slot_bytes = 256;
  for (const double death : {0.0, 1e-6, 10e-6, 33e-6, 40.5e-6, 60e-6}) {
    World world(config);
    world.sim().kill(3, death);
    Allreduce program(ring, 8, 1024);
    auto task = [&](Call& call, int rank) { return program.start(call, rank); };
    const std::vector<Error> errors = run_ranks(world, task);
    for (std::size_t rank = 0; rank < 8; ++rank) {
      INFO("rank " << rank << " death " << death << ": " << errors[rank].message());
      CHECK(world.ended(static_cast<int>(rank)));
      // Late in the call, those have succeeded who needed no more of the dead rank.
      if (!errors[rank] && rank != 3 && death > 40e-6) continue;
      CHECK(errors[rank].code() == Code::remote);
      CHECK(errors[rank].rank() == 3);
    }
    CHECK(world.elapsed_s() >= config.detection_s);
    CHECK(world.leaks() == "");
  }
}

TEST_CASE("a deadlock is reported by name, and watching does not hide it", "[sim]") {
  SimConfig config = two_ranks();
  World world(config);
  std::vector<std::byte> into(8);
  int watched = 0;
  std::function<void()> watch = [&] {
    ++watched;
    world.sim().after(1e-3, watch, true);
  };
  watch();
  auto task = [&](Call& call, int rank) { return recv_many(call, 1 - rank, 1, bytes_of(into)); };
  const std::vector<Error> errors = run_ranks(world, task);
  CHECK(errors[0].code() == Code::internal);
  CHECK(std::string(errors[0].message()) ==
        "rank 0 has not ended:\n"
        "rank 0 waits for rank 1, call 1 lane 0 step 0\n"
        "rank 1 waits for rank 0, call 1 lane 0 step 0\n");
  CHECK(watched == 1);
  CHECK(world.leaks() == "");
}

TEST_CASE("calls of other arguments are told apart", "[sim]") {
  World world(two_ranks());
  world.digest = [](int rank) { return static_cast<std::uint64_t>(rank); };
  Allreduce program(doubling, 2, 8);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  for (const Error& error : run_ranks(world, task)) CHECK(error.code() == Code::invalid_usage);
  CHECK(world.leaks() == "");
}

}  // namespace pith::test
