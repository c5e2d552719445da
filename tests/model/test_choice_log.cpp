// The file by which a communicator tells what it chooses: when it is written, and what is in it.
#include "model/choice_log.hpp"

#include <string>

#include "collectives/registry.hpp"
#include "tests/catch.hpp"
#include "tests/model/temporary_folder.hpp"

namespace pith::test {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;

Settings learning() {
  Settings settings;
  settings.learn = true;
  return settings;
}

void time(Tuner& tuner, std::string_view algorithm, std::size_t bytes, double seconds, int calls) {
  for (int i = 0; i < calls; ++i) {
    tuner.add({find_algorithm(Collective::allreduce, algorithm), Variant::usual, bytes, seconds});
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("choices are written once a second, and only if there is news", "[choice_log]") {
  const TemporaryFolder folder;
  const Model model(learning(), 4);
  Tuner tuner(model);
  ChoiceLog log(folder.path(), model, 2);
  log.look(nullptr, 5 * second_ns);
  const std::string first = folder.take();
  CHECK(has(first, R"("ended": false)"));
  CHECK(has(first, R"("ranks": 4, "hosts": 2, "learns": true)"));
  log.look(nullptr, 7 * second_ns);
  CHECK(folder.take() == "");
  time(tuner, "ring", 65536, 1e-3, 2);
  log.look(&tuner, 7 * second_ns + second_ns / 2);
  CHECK(folder.take() == "");
  log.look(&tuner, 8 * second_ns);
  CHECK(has(folder.take(), R"("timed_calls": 2)"));
  log.look(&tuner, 10 * second_ns);
  CHECK(folder.take() == "");
  log.end(&tuner);
  CHECK(has(folder.take(), R"("ended": true)"));
  CHECK(folder.is_empty());
}

TEST_CASE("choices tell what every algorithm should take and has taken", "[choice_log]") {
  const TemporaryFolder folder;
  const Model model(learning(), 64);
  Tuner tuner(model);
  time(tuner, "ring", 65536, 1e-3, 9);
  time(tuner, "rabenseifner", 40000, 0.5e-3, 9);
  ChoiceLog log(folder.path(), model, 64);
  log.end(&tuner);
  const std::string text = folder.take();
  INFO(text);
  CHECK(has(text,
            R"({"collective": "allreduce", "bytes": 65536, "timed_calls": 18, "forced": false,)"));
  // The first call of a plan is not counted.
  CHECK(has(text, R"("samples": 8, "median_s": 0.001)"));
  CHECK(has(text, R"({"algorithm": "two_shot", "variant": "", "serves": false})"));
  CHECK(has(text, R"({"algorithm": "double_tree", "variant": "", "predicted_s": )"));
  CHECK(!has(text, R"("collective": "broadcast")"));
}

TEST_CASE("what a cell has learnt", "[choice_log]") {
  const Model model(learning(), 4);
  Tuner tuner(model);
  CHECK(tuner.cells().empty());
  time(tuner, "ring", 60000, 1e-3, 5);
  const std::vector<TunedCell> cells = tuner.cells();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].size.largest() == 65536);
  CHECK(cells[0].timed_calls == 5);
  CHECK(!cells[0].settled);
  REQUIRE(cells[0].tried.size() == 1);
  CHECK(cells[0].tried[0].samples == 4);
  CHECK(cells[0].tried[0].median_s > 1e-3);  // of the largest size
}

}  // namespace pith::test
