// The file by which a job tells its next run what its links are: when it is written, and what that
// run makes of it.
#include "model/link_log.hpp"

#include <cmath>
#include <string>

#include "collectives/registry.hpp"
#include "tests/catch.hpp"
#include "tests/model/temporary_folder.hpp"

namespace pith::test {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;

LinkTable empty_table() {
  LinkTable table;
  table.set_places({4, 4, 1});
  return table;
}

// Calls of short and of long vectors that take as long as on this link.
void call_on(const LinkCost& link, const Model& model, Tuner& tuner) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    const Algorithm& algorithm = model.algorithm(Collective::allreduce, bytes);
    const double seconds = model.cost(algorithm, bytes, Variant::usual, &link);
    for (int i = 0; i < 40; ++i) tuner.add({&algorithm, Variant::usual, bytes, seconds});
  }
}

KnownLinks known_by(const std::string& text) {
  LinkTable table;
  REQUIRE_FALSE(table.restore(text));
  return table.known();
}

}  // namespace

TEST_CASE("a job's links are written now and then, and at its end", "[link_log]") {
  const TemporaryFolder folder;
  const LinkCost truth = link_with(400e-6, 9e-9);
  const Model model(4);
  Tuner tuner(model);
  LinkLog log(folder.path(), empty_table());
  log.look(nullptr, 1);
  log.look(nullptr, 29 * second_ns);
  CHECK(folder.is_empty());
  call_on(truth, model, tuner);
  log.look(&tuner, 31 * second_ns);
  const std::string text = folder.take();
  CHECK(known_by(text).calls.alpha == Approx(truth.alpha).epsilon(0.1));
  CHECK(known_by(text).calls.beta == Approx(truth.beta).epsilon(0.1));
  log.look(&tuner, 62 * second_ns);
  CHECK(folder.is_empty());  // nothing is new
  log.end(&tuner);
  CHECK(folder.take() == text);
}

TEST_CASE("a job that learns nothing hands on what it was given", "[link_log]") {
  const TemporaryFolder folder;
  LinkTable table = empty_table();
  table.path(0).restore({1e-3, 0.6}, {1e-9, 0.6});
  table.set_calls({{2e-3, 0.1}, {2e-9, 1.5}});
  LinkLog(folder.path(), table).end(nullptr);
  CHECK(folder.take() == table.save());
  LinkLog("/nowhere/links", table).end(nullptr);  // is logged
}

TEST_CASE("what calls have not told of a link is known to be unknown", "[link_log]") {
  const Model model(4);
  Tuner tuner(model);
  CHECK_FALSE(tuner.learnt_link());
  const Algorithm& algorithm = model.algorithm(Collective::allreduce, 8);
  for (int i = 0; i < 20; ++i) tuner.add({&algorithm, Variant::usual, 8, 5e-3});
  const std::optional<LinkTable::OfCalls> learnt = tuner.learnt_link();
  REQUIRE(learnt);
  CHECK(learnt->alpha.log_sd < 0.3);
  CHECK(learnt->beta.log_sd > 1);
}

}  // namespace pith::test
