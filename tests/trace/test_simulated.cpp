// Calls recorded in virtual time, where every figure is known.
#include <map>
#include <nlohmann/json.hpp>

#include "picture.hpp"
#include "simulate.hpp"
#include "tests/catch.hpp"

namespace {

using namespace pith_trace;

Picture picture_of_simulation(const Simulation& simulation) {
  const auto texts = simulate(simulation);
  INFO(texts.error().message());
  REQUIRE(texts);
  std::vector<RankTrace> ranks;
  for (const std::string& text : *texts) {
    auto rank = read_trace(text, "simulated");
    INFO(rank.error().message());
    REQUIRE(rank);
    ranks.push_back(std::move(*rank));
  }
  REQUIRE(complete_calls(ranks).size() == 1);
  REQUIRE(complete_calls(ranks).front().number == 1);
  auto picture = picture_of(std::move(ranks), 1);
  INFO(picture.error().message());
  REQUIRE(picture);
  return std::move(*picture);
}

const Step& sent(const Picture& picture, const Message& message) {
  return picture.ranks[static_cast<std::size_t>(message.from)].steps[message.send];
}
const Step& received(const Picture& picture, const Message& message) {
  return picture.ranks[static_cast<std::size_t>(message.to)].steps[message.receive];
}

void check_order(const RankTrace& rank) {
  std::map<std::uint64_t, const Step*> known;
  double last_us = 0;
  for (const Step& step : rank.steps) {
    if (step.op != "kernel") {  // one in a queue begins when the one before has ended
      CHECK(step.begin_us >= last_us);
      last_us = step.begin_us;
    }
    CHECK(step.ended);
    CHECK_FALSE(step.failed);
    CHECK(step.end_us >= step.begin_us);
    for (const std::uint64_t wait : step.waits) CHECK(wait < step.id);
    // A message leaves once what it carries is there.
    for (const std::uint64_t wait : step.waits) {
      if (step.op == "send" && known.count(wait)) CHECK(known[wait]->end_us <= step.begin_us);
    }
    known[step.id] = &step;
  }
}

}  // namespace

TEST_CASE("trace: in every algorithm sends and receives pair up and time runs forward", "[trace]") {
  for (const pith::Algorithm& algorithm : pith::algorithms()) {
    for (const int ranks : {2, 5, 8}) {
      Simulation simulation;
      simulation.algorithm =
          std::string(name_of(algorithm.collective)) + ":" + std::string(algorithm.name);
      simulation.ranks = ranks;
      simulation.bytes = 5000;
      simulation.chunk_bytes = 512;
      INFO(simulation.algorithm << " of " << ranks);
      const Picture picture = picture_of_simulation(simulation);
      CHECK(picture.unpaired == 0);
      CHECK_FALSE(picture.messages.empty());
      for (const Message& message : picture.messages) {
        const Step& from = sent(picture, message);
        const Step& to = received(picture, message);
        CHECK(from.bytes == to.bytes);
        // The latency at least, to the nanosecond.
        CHECK(to.end_us - from.begin_us > simulation.link.alpha * 1e6 - 0.002);
      }
      for (const RankTrace& rank : picture.ranks) check_order(rank);
    }
  }
}

TEST_CASE("trace: a ring sends 2 (P-1)/P of the vector from every rank", "[trace]") {
  for (const int ranks : {2, 4, 8, 32}) {
    Simulation simulation;
    simulation.ranks = ranks;
    simulation.bytes = std::size_t{1} << 20;
    const Picture picture = picture_of_simulation(simulation);
    const auto p = static_cast<std::uint64_t>(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(picture.bytes_sent(rank) == 2 * (p - 1) * simulation.bytes / p);
    }
  }
}

TEST_CASE("trace: a kernel waits for the message that it reads, a send for the kernel", "[trace]") {
  Simulation simulation;
  simulation.ranks = 4;
  simulation.bytes = 4096;
  const Picture picture = picture_of_simulation(simulation);
  for (const RankTrace& rank : picture.ranks) {
    std::map<std::uint64_t, std::string> ops;
    for (const Step& step : rank.steps) ops[step.id] = step.op;
    std::size_t kernels = 0;
    std::size_t sends_behind_kernels = 0;
    for (const Step& step : rank.steps) {
      bool reads_message = false;
      bool behind_kernel = false;
      for (const std::uint64_t wait : step.waits) {
        reads_message |= ops[wait] == "receive";
        behind_kernel |= ops[wait] == "kernel";
      }
      if (step.op == "kernel" && step.name.starts_with("reduce")) {
        ++kernels;
        CHECK(reads_message);
      }
      if (step.op == "send") sends_behind_kernels += behind_kernel ? 1 : 0;
    }
    CHECK(kernels == 3);
    CHECK(sends_behind_kernels == 3);
  }
}

TEST_CASE("trace: the same simulation gives the same trace", "[trace]") {
  Simulation simulation;
  simulation.algorithm = "allreduce:rabenseifner";
  simulation.ranks = 6;
  CHECK(*simulate(simulation) == *simulate(simulation));
}

TEST_CASE("trace: the Chrome file has a slice a step, no two of them in each other's way",
          "[trace]") {
  Simulation simulation;
  simulation.ranks = 4;
  simulation.chunk_bytes = 4096;
  simulation.bytes = 65536;
  const Picture picture = picture_of_simulation(simulation);
  const auto parsed = nlohmann::json::parse(chrome_json(picture));
  std::size_t slices = 0;
  std::size_t starts = 0;
  std::size_t ends = 0;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const auto& event : parsed.at("traceEvents")) {
    const std::string phase = event.at("ph");
    starts += phase == "s" ? 1 : 0;
    ends += phase == "f" ? 1 : 0;
    if (phase != "X") continue;
    ++slices;
    const double begin = event.at("ts");
    tracks[{event.at("pid"), event.at("tid")}].emplace_back(begin,
                                                            begin + event.at("dur").get<double>());
  }
  std::size_t steps = 0;
  for (const RankTrace& rank : picture.ranks) steps += rank.steps.size();
  CHECK(slices == steps);
  CHECK(starts == picture.messages.size());
  CHECK(ends == picture.messages.size());
  for (auto& [track, spans] : tracks) {
    for (std::size_t i = 1; i < spans.size(); ++i) {
      CHECK(spans[i].first >= spans[i - 1].second - 1e-6);
    }
  }
}

TEST_CASE("trace: clocks that differ are brought together", "[trace]") {
  Simulation simulation;
  simulation.ranks = 3;
  auto texts = simulate(simulation);
  REQUIRE(texts);
  std::vector<RankTrace> ranks;
  for (const std::string& text : *texts) ranks.push_back(*read_trace(text, "simulated"));
  for (Step& step : ranks[1].steps) {  // started an hour later, and set 0.4 ms wrong
    step.begin_us -= 3.6e9 + 400;
    step.end_us -= 3.6e9 + 400;
  }
  ranks[1].wall_offset_us = 3.6e9;
  const auto picture = picture_of(std::move(ranks), 1);
  REQUIRE(picture);
  for (const Message& message : picture->messages) {
    CHECK(received(*picture, message).end_us >= sent(*picture, message).begin_us - 1e-3);
  }
  CHECK(picture->end_us < 1e6);
}

TEST_CASE("trace: what is no trace is refused", "[trace]") {
  const auto garbage = read_trace("{\"a\":1}\n", "file x");
  CHECK_FALSE(garbage);
  CHECK(std::string(garbage.error().message()).find("file x, line 1") == 0);
  CHECK_FALSE(read_trace("not json", "y"));
  CHECK_FALSE(read_trace("", "z"));

  Simulation simulation;
  simulation.ranks = 2;
  const auto texts = simulate(simulation);
  REQUIRE(texts);
  const auto one = picture_of({*read_trace((*texts)[0], "0")}, 1);
  CHECK_FALSE(one);
  const auto twice = picture_of({*read_trace((*texts)[0], "0"), *read_trace((*texts)[0], "0")}, 1);
  CHECK(std::string(twice.error().message()).find("rank 1 is missing") != std::string::npos);
  const auto other = picture_of({*read_trace((*texts)[0], "0"), *read_trace((*texts)[1], "1")}, 7);
  CHECK(std::string(other.error().message()).find("call 7") != std::string::npos);

  simulation.algorithm = "allreduce:rign";
  CHECK(std::string(simulate(simulation).error().message()).find("allreduce:ring") !=
        std::string::npos);
}
