#include "tests/sim/world.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <sanitizer/asan_interface.h>

#include "tests/sim/programs.hpp"

namespace pith::test {

namespace {

constexpr std::byte scribble{0xA5};

// The call has returned, and the memory is the user's: nobody may write it, nor even read it.
void take_back(std::span<std::byte> memory) {
  std::ranges::fill(memory, scribble);
  ASAN_POISON_MEMORY_REGION(memory.data(), memory.size());
}

bool is_as_it_was(std::span<std::byte> memory) {
  ASAN_UNPOISON_MEMORY_REGION(memory.data(), memory.size());
  return std::ranges::all_of(memory, [](std::byte b) { return b == scribble; });
}

// What the ranks do after an abort: another communicator, while the old one is still there.
std::string run_next(World& world) {
  world.on_end = nullptr;
  world.renew();
  Allreduce program(ring, world.size(), static_cast<std::size_t>(world.size()));
  std::string failure;
  auto task = [&program](Call& call, int rank) { return program.start(call, rank); };
  for (const Error& error : run_ranks(world, task)) {
    if (error) failure += fmt::format("the next communicator: {}\n", error.message());
  }
  return failure;
}

Task<Error> run_checked(Call& call, Program& program, int rank, std::string& failure) {
  Error error = co_await program.start(call, rank);
  if (!error) failure += program.check_result(rank);
  co_return error;
}

struct Abort {
  std::uint64_t step = 0;
  int victim = 0;
};

std::string run_with_abort(const SimConfig& config, Program& program, const AbortOptions& options,
                           const Abort& abort, bool& reached) {
  World world(config);
  world.revoke_delay_s = options.revoke_delay_s;
  if (!options.hosts.empty()) world.set_hosts(options.hosts);
  if (options.traced) world.record(64);
  world.on_end = [&program](int rank) { take_back(program.memory(rank)); };
  world.new_calls();
  std::string failure;
  std::vector<Task<Error>> tasks;
  for (int rank = 0; rank < world.size(); ++rank) {
    tasks.push_back(run_checked(world.call(rank), program, rank, failure));
  }
  world.start(std::move(tasks));
  std::uint64_t done = 0;
  while (done < abort.step && world.sim().step()) ++done;
  reached = done == abort.step;

  const int victim = abort.victim;
  world.revoke(victim, Error(Code::remote, fmt::format("rank {} has aborted", victim), victim));
  for (const Error& error : world.finish()) {
    if (error.code() == Code::internal) failure += error.message();
  }
  bool all_ended = true;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.ended(rank)) continue;
    failure += fmt::format("rank {} never ends\n", rank);
    all_ended = false;
  }
  if (all_ended) failure += run_next(world) + world.leaks();
  for (int rank = 0; rank < world.size(); ++rank) {
    if (is_as_it_was(program.memory(rank)) || !all_ended) continue;
    failure += fmt::format("rank {}: a buffer was written after the call\n", rank);
  }
  return failure;
}

std::optional<std::uint64_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

std::vector<int> victims_at(std::uint64_t step, int ranks, const AbortOptions& options) {
  if (const auto only = number_in("PITH_TEST_VICTIM")) return {static_cast<int>(*only)};
  if (options.victim >= 0) return {options.victim};
  if (ranks > 3 && !std::getenv("PITH_TEST_FULL")) {
    return {static_cast<int>(step % static_cast<std::uint64_t>(ranks))};
  }
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  return all;
}

}  // namespace

AbortReport inject_aborts(const SimConfig& config,
                          const std::function<std::unique_ptr<Program>()>& make,
                          AbortOptions options) {
  AbortReport report;
  const std::optional<std::uint64_t> only = number_in("PITH_TEST_STEP");
  bool reached = true;
  for (std::uint64_t step = only.value_or(options.first); reached; step += options.stride) {
    for (const int victim : victims_at(step, config.ranks, options)) {
      const std::unique_ptr<Program> program = make();
      std::string failure = run_with_abort(config, *program, options, {step, victim}, reached);
      if (reached) ++report.points;
      if (failure.empty()) continue;
      report.failure = fmt::format("rank {} aborts at step {} (seed {}):\n{}", victim, step,
                                   config.seed, failure);
      report.variables = fmt::format("PITH_TEST_STEP={} PITH_TEST_VICTIM={} ", step, victim);
      return report;
    }
    if (only) break;
  }
  return report;
}

}  // namespace pith::test
