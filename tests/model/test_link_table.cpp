// Which estimate is whose, and what another run is given.
#include "model/link_table.hpp"

#include <string>

#include "model/nominal.hpp"
#include "tests/catch.hpp"
#include "tests/model/noise.hpp"

namespace pith::test {

namespace {

void learn(LinkEstimate& estimate, double alpha, double beta, int samples) {
  Noise noise(1, 0.05, 0);
  for (int i = 0; i < samples; ++i) {
    const std::size_t bytes = noise.bytes();
    estimate.add(bytes, noise.of(alpha + beta * static_cast<double>(bytes)));
  }
}

}  // namespace

TEST_CASE("a new table is nominal", "[link_table]") {
  LinkTable table(2);
  CHECK(table.host(HostLink::views).alpha().value == nominal::memory.alpha);
  CHECK(table.path(1).beta().value == nominal::wire.beta);
  const LinkCost cost = table.cost(table.path(0), MemoryKind::host);
  CHECK(cost.alpha == nominal::wire.alpha);
  CHECK(cost.beta == nominal::wire.beta);
  CHECK(cost.gamma == nominal::wire.gamma);
  CHECK(table.save() == "pith links 1\n");
}

TEST_CASE("links and rates are learnt apart", "[link_table]") {
  LinkTable table(2);
  learn(table.path(1), 1e-3, 8e-9, 200);
  learn(table.work(WorkKind::reduce, MemoryKind::host), 50e-9, 0.05e-9, 200);
  CHECK(table.path(1).alpha().value == Approx(1e-3).epsilon(0.05));
  CHECK(table.path(0).samples() == 0);
  CHECK(table.work(WorkKind::reduce, MemoryKind::cuda).samples() == 0);
  CHECK(table.cost(table.path(1), MemoryKind::host).gamma == Approx(0.05e-9).epsilon(0.05));
}

TEST_CASE("another run begins with what was saved", "[link_table]") {
  LinkTable table(3);
  learn(table.host(HostLink::copies), 2e-6, 0.1e-9, 300);
  learn(table.path(2), 1e-3, 8e-9, 300);
  learn(table.work(WorkKind::decode, MemoryKind::cuda), 9e-6, 0.3e-9, 300);
  const std::string saved = table.save();
  CHECK_THAT(saved, ContainsSubstring("\npath/2 "));
  CHECK_THAT(saved, ContainsSubstring("\ndecode/cuda "));

  LinkTable next(3);
  REQUIRE_FALSE(next.restore(saved));
  CHECK(next.host(HostLink::copies).beta().value == table.host(HostLink::copies).beta().value);
  CHECK(next.path(2).alpha().value == table.path(2).alpha().value);
  CHECK(next.path(0).alpha().value == nominal::wire.alpha);
  LinkEstimate& decode = next.work(WorkKind::decode, MemoryKind::cuda);
  CHECK(decode.alpha().value == table.work(WorkKind::decode, MemoryKind::cuda).alpha().value);
  // A run without traffic forgets nothing.
  CHECK_THAT(next.save(), ContainsSubstring("\npath/2 "));
  // A guess, which ten samples overrule.
  CHECK(decode.beta().log_sd >= 0.5);
  learn(decode, 18e-6, 0.15e-9, 10);
  CHECK(decode.alpha().value == Approx(18e-6).epsilon(0.1));
  CHECK(decode.beta().value == Approx(0.15e-9).epsilon(0.1));
}

TEST_CASE("what another table had is passed over", "[link_table]") {
  LinkTable table;
  REQUIRE_FALSE(
      table.restore("pith links 1\n"
                    "path/7 1 1 1 1\nsummon/host 1 1 1 1\nreduce/moon 1 1 1 1\n"
                    "telepathy 1 1 1 1\npath/0 2e-05 0.1 1e-09 1e300\n"));
  CHECK(table.path(0).beta().value == 1e-9);
  CHECK(table.path(0).beta().log_sd == Approx(LinkEstimate::Options().nominal_log_sd));
}

TEST_CASE("a damaged file changes nothing", "[link_table]") {
  LinkTable table;
  const std::string good = "pith links 1\npath/0 1e-05 0.1 1e-09 0.1\n";
  for (const char* bad : {"path/0 1 1 1", "path/0 1 1 1 1 1", "path/0 0 1 1 1", "path/0 1 1 -1 1",
                          "path/0 1 -1 1 1", "path/0 nan 1 1 1", "path/0 1 nan 1 1",
                          "path/0 inf 1 1 1", "path/0 1x 1 1 1", " 1 1 1 1"}) {
    const Error error = table.restore(good + bad);
    CHECK(error.code() == Code::invalid_argument);
    CHECK_THAT(error.message(), ContainsSubstring("line 3"));
  }
  CHECK(table.restore("").code() == Code::invalid_argument);
  CHECK(table.restore("pith links 2\n").code() == Code::invalid_argument);
  CHECK(table.path(0).alpha().value == nominal::wire.alpha);
  for (std::size_t length = 0; length < good.size(); ++length) {
    const Error ignored = table.restore(good.substr(0, length));
  }
}

}  // namespace pith::test
