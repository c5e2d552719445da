// Messages of pairs in the simulator: all at once, in pieces, and with an abort at every step.
#include "tests/catch.hpp"
#include "tests/collectives/message_program.hpp"
#include "tests/one_case.hpp"

namespace pith::test {

namespace {

SimConfig simulator(int ranks, int which) {
  SimConfig config;
  config.ranks = ranks;
  config.kernel_s = 1e-7;
  config.late_kernels = (which & 1) != 0;
  if ((which & 1) == 0) config.slot_bytes = 48;
  if ((which & 2) != 0) config.wire_bytes = 150;
  return config;
}

std::string run_messages(const MessageCase& c, const SimConfig& config) {
  World world(config);
  MessageCounts counts;
  std::string failure;
  for (int turn = 0; turn < 3 && failure.empty(); ++turn) {
    MessageProgram program(c, counts);
    auto task = [&](Call& call, int rank) { return program.start(call, rank); };
    for (const Error& error : run_ranks(world, task)) {
      if (error && failure.empty()) failure = error.message();
    }
    if (failure.empty()) failure = program.check();
  }
  if (failure.empty()) failure = world.leaks();
  return failure.empty() ? failure : describe(c) + "\n  " + failure;
}

}  // namespace

TEST_CASE("messages among all ranks arrive, in order", "[messages]") {
  MessageCase c;
  for (c.ranks = 1; c.ranks <= 17; ++c.ranks) {
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{63}, std::size_t{4096}}) {
      for (int which = 0; which < 4; ++which) {
        c.messages = 3 * static_cast<std::size_t>(c.ranks);
        c.chunk_bytes = chunk;
        ++c.seed;
        const std::string failure = run_messages(c, simulator(c.ranks, which));
        if (!failure.empty()) FAIL_CHECK(failure);
      }
    }
  }
}

TEST_CASE("an abort at any step of messages", "[messages][abort]") {
  MessageCase c;
  std::uint64_t points = 0;
  for (c.ranks = 2; c.ranks <= 5; ++c.ranks) {
    for (int which = 0; which < 4; ++which) {
      ++c.seed;
      c.messages = 2 * static_cast<std::size_t>(c.ranks);
      const std::string name = fmt::format("{}, simulator {}", describe(c), which);
      if (!is_wanted(name)) continue;
      std::vector<std::unique_ptr<MessageCounts>> counts;  // every run begins anew
      auto make = [&]() -> std::unique_ptr<Program> {
        counts.push_back(std::make_unique<MessageCounts>());
        return std::make_unique<MessageProgram>(c, *counts.back());
      };
      const AbortReport report = inject_aborts(simulator(c.ranks, which), make);
      if (!report.failure.empty()) {
        print_again(report.variables + "build/bin/test_collectives '[messages][abort]'", name);
      }
      INFO(name);
      CHECK(report.failure == "");
      points += report.points;
    }
  }
  CHECK((points > 200 || is_alone()));
}

TEST_CASE("ends that differ are named by the receiver", "[messages]") {
  struct End {
    std::size_t count;
    DType type;
  };
  struct Case {
    End sent;
    End expected;
    const char* text;
  };
  for (const Case& c : {Case{{12, DType::u8}, {10, DType::u8}, "sent 12 elements of type uint8"},
                        Case{{10, DType::u8}, {12, DType::u8}, "where 12 of type uint8"},
                        Case{{4, DType::f32}, {4, DType::i32}, "where 4 of type int32"},
                        Case{{500, DType::u8}, {0, DType::u8}, "sent 500 elements"}}) {
    // Without and with room for the message.
    const std::size_t window = GENERATE(std::size_t{128}, std::size_t{4096});
    World world(simulator(2, 0));
    std::vector<std::byte> memory(4096);
    std::array<Message, 2> ends;
    for (const bool sends : {true, false}) {
      const End& end = sends ? c.sent : c.expected;
      ends[sends ? 0 : 1] = {{memory.data(), end.count * size_of(end.type)},
                             end.count,
                             end.type,
                             sends ? 1 : 0,
                             sends,
                             0};
    }
    std::array windows = {PairWindows(2, window), PairWindows(2, window)};
    auto task = [&](Call& call, int rank) {
      const auto r = static_cast<std::size_t>(rank);
      return exchange_messages(call, std::span(&ends[r], 1), windows[r], 64);
    };
    const std::vector<Error> errors = run_ranks(world, task);
    CHECK(errors[1].code() == Code::invalid_usage);
    CHECK(std::string(errors[1].message()).find(c.text) != std::string::npos);
    CHECK(errors[0].code() != Code::internal);
    CHECK(world.leaks() == "");
  }
}

TEST_CASE("messages of a rank to itself pair up or are refused", "[messages]") {
  std::array<std::byte, 64> memory{};
  const auto end = [&](std::size_t count, bool sends) {
    return Message{{memory.data(), count}, count, DType::u8, 3, sends, 0};
  };
  const auto refusal = [](const std::vector<Message>& messages) {
    return std::string(check_own(messages, 3).message());
  };
  CHECK(refusal({}) == "");
  CHECK(refusal({end(1, true), end(1, false)}) == "");
  CHECK(refusal({end(1, true), end(2, true), end(1, false), end(2, false)}) == "");
  CHECK(refusal({end(1, true), end(2, true), end(2, false), end(1, false)}).find("sends 1") !=
        std::string::npos);
  Message other = end(1, false);
  other.type = DType::i8;
  CHECK(refusal({end(1, true), other}).find("1 of type") != std::string::npos);
  CHECK(refusal({end(1, true)}).find("rank 3 sends to itself") != std::string::npos);
  CHECK(refusal({end(1, false)}).find("rank 3 receives from itself") != std::string::npos);
  CHECK(check_own(std::vector{end(1, false)}, 2).message() == std::string());
}

}  // namespace pith::test
