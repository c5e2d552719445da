// How much a rank keeps of messages that came before anybody waited for them: what the limits of
// its mailbox allow and a few chunks a strand, whatever the vector's length, and however many calls
// the others are ahead. Sends complete at once as far as a wire has room, as those of sockets do.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

constexpr std::size_t chunk_bytes = 1024;
constexpr std::size_t limit = 4 * chunk_bytes;
constexpr std::size_t total_limit = 8 * chunk_bytes;
constexpr int lanes = 4;

using Programs = std::vector<std::unique_ptr<DenseProgram>>;

Task<Error> make_calls(Call& first, Programs& programs, int rank) {
  std::uint32_t number = first.number();
  for (const auto& program : programs) {
    Call call(first.context(), number, number);
    ++number;
    Task<Error> task = program->start(call, rank);
    Error error = co_await std::move(task);
    if (error) co_return error;
  }
  co_return Error();
}

// With the messages' headers a little more than their bytes: see Mailbox::backlog().
std::size_t most_kept(World& world, Programs& programs) {
  world.new_calls();
  std::vector<Task<Error>> tasks;
  for (int rank = 0; rank < world.size(); ++rank) {
    world.mailbox(rank).backlog_limit = limit;
    world.mailbox(rank).limit_total_backlog(total_limit);
    tasks.push_back(make_calls(world.call(rank), programs, rank));
  }
  world.start(std::move(tasks));
  std::size_t most = 0;
  while (world.sim().step()) {
    for (int rank = 0; rank < world.size(); ++rank) {
      most = std::max(most, world.mailbox(rank).flow().backlog());
    }
  }
  for (const Error& error : world.finish()) CHECK(!error);
  return most;
}

// Those for long vectors. Others send them whole; in two-shot and the double tree inputs wait for
// no result.
bool is_for_long_vectors(const Algorithm& algorithm) {
  for (const char* name : {"ring", "chain", "tree", "pairwise"}) {
    if (algorithm.name == name) return true;
  }
  return algorithm.collective == Collective::gather || algorithm.collective == Collective::scatter;
}

}  // namespace

TEST_CASE("a rank that is late keeps a few chunks of the others", "[collectives][ahead]") {
  constexpr std::size_t chunks = 60;
  for (const Algorithm& algorithm : algorithms()) {
    if (!is_for_long_vectors(algorithm)) continue;
    for (const int ranks : {2, 4, 7}) {
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        DenseCase c;
        c.algorithm = &algorithm;
        c.ranks = ranks;
        c.type = DType::u8;
        c.count = chunks * chunk_bytes;
        c.tuning = {chunk_bytes, lanes};
        SimConfig config;
        config.ranks = ranks;
        config.seed = seed;
        config.link = {1e-6, 0};
        config.jitter_s = 1e-5;
        World world(config);
        const int late = static_cast<int>(seed - 1);
        world.start_s = [late](int rank) { return rank == late ? 1e-3 : 0.0; };
        Programs programs;
        for (c.seed = 1; c.seed <= 2; ++c.seed) {
          programs.push_back(std::make_unique<DenseProgram>(c));
        }
        INFO(describe(c) << ", seed " << seed);
        // Beyond the limit: one of each peer, and what each strand has under way.
        const std::size_t few = static_cast<std::size_t>(ranks - 1 + 2 * lanes) * chunk_bytes;
        CHECK(most_kept(world, programs) < total_limit + few);
        for (const auto& program : programs) CHECK(program->check() == "");
        CHECK(world.leaks() == "");
      }
    }
  }
}

}  // namespace pith::test
