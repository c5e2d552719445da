// Which estimate is whose, and what another run is given.
#include "model/link_table.hpp"

#include <string>

#include "model/nominal.hpp"
#include "tests/catch.hpp"
#include "tests/model/noise.hpp"

namespace pith::test {

namespace {

const std::string head = "pith links 2\nof 4 ranks on 2 hosts 89abcdef01234567\n";

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
  CHECK(table.save() == "pith links 2\nof 0 ranks on 0 hosts 0000000000000000\n");
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
  REQUIRE_FALSE(table.restore(head + "path/7 1 1 1 1\nsummon/host 1 1 1 1\nreduce/moon 1 1 1 1\n"
                                     "telepathy 1 1 1 1\npath/0 2e-05 0.1 1e-09 1e300\n"));
  CHECK(table.path(0).beta().value == 1e-9);
  CHECK(table.path(0).beta().log_sd == Approx(LinkEstimate::Options().nominal_log_sd));
}

TEST_CASE("a mistake in a file is named", "[link_table]") {
  LinkTable table;
  for (const auto& [bad, said] :
       {std::pair{"path/0 1 1 fast 1", "line 3, \"path/0\": beta is \"fast\", expected seconds"},
        {"calls 1 -2 1 1", "line 3, \"calls\": what is not known of alpha is \"-2\", expected"},
        {"views 1 1 1 1 1", "line 3, \"views\": \"1\" follows, expected nothing"},
        {" 1 1 1 1", "line 3, \"\": does not begin with a name"}}) {
    CHECK_THAT(table.restore(head + bad).message(), ContainsSubstring(said));
  }
}

TEST_CASE("whose links they are, and what calls told, is kept", "[link_table]") {
  LinkTable table;
  table.set_places({4, 2, 0x89abcdef01234567});
  CHECK_FALSE(table.known().between(true).known());
  table.set_calls({{1e-4, 0.2}, {3e-9, 1.5}});
  CHECK(table.save() == head + "calls 0.0001 0.2 3e-09 1.5\n");
  LinkTable next;
  REQUIRE_FALSE(next.restore(table.save()));
  CHECK(next.places() == table.places());
  CHECK(next.save() == table.save());
  CHECK(next.known().between(true).alpha == 1e-4);
}

TEST_CASE("calls begin with the link that is most like theirs", "[link_table]") {
  LinkTable table(3);
  REQUIRE_FALSE(table.restore(head + "views 1e-07 0.1 1e-10 0.1\nmessages 2e-06 0.1 2e-10 0.1\n"
                                     "path/0 2e-05 0.1 3e-09 0.1\npath/2 3e-05 0.1 1e-09 0.1\n"
                                     "reduce/host 1e-07 0.1 4e-10 0.1\n"));
  const KnownLinks known = KnownLinks::unpack(table.known().pack());
  CHECK(known.views.beta == 1e-10);
  CHECK(known.gamma == 4e-10);
  CHECK(known.between(false).alpha == 2e-6);
  CHECK(known.between(true).alpha == 3e-5);  // of the slowest path
  CHECK(known.between(true).beta == 3e-9);
  CHECK_FALSE(KnownLinks::unpack(table.known().pack() + "x").views.known());
  CHECK_FALSE(KnownLinks::unpack("short").views.known());
}

TEST_CASE("places are the same however hosts are numbered", "[link_table]") {
  const JobPlaces places = places_of({7, 7, 9});
  CHECK(places.ranks == 3);
  CHECK(places.hosts == 2);
  CHECK(places.text() == "3 ranks on 2 hosts");
  CHECK(places == places_of({9, 7, 7}));
  CHECK(places != places_of({9, 9, 7}));
  CHECK(places != places_of({9, 8, 7}));
  CHECK(host_name_hash("a") == host_name_hash("a"));
  CHECK(host_name_hash("a") != host_name_hash("b"));
}

TEST_CASE("a damaged file changes nothing", "[link_table]") {
  LinkTable table;
  const std::string good = head + "path/0 1e-05 0.1 1e-09 0.1\n";
  for (const char* bad : {"path/0 1 1 1", "path/0 1 1 1 1 1", "path/0 0 1 1 1", "path/0 1 1 -1 1",
                          "path/0 1 -1 1 1", "path/0 nan 1 1 1", "path/0 1 nan 1 1",
                          "path/0 inf 1 1 1", "path/0 1x 1 1 1", " 1 1 1 1"}) {
    const Error error = table.restore(good + bad);
    CHECK(error.code() == Code::invalid_argument);
    CHECK_THAT(error.message(), ContainsSubstring("line 4"));
  }
  CHECK(table.restore("").code() == Code::invalid_argument);
  for (const char* bad : {"pith links 1\n", "pith links 2\n", "pith links 2\nof 4 hosts\n",
                          "pith links 2\nof 4 ranks on 2 hosts 89abcdef0123456789\n",
                          "pith links 2\nof 4 ranks on 2 hosts 89abcdef01234567 more\n",
                          "pith links 2\npath/0 1e-05 0.1 1e-09 0.1\n"}) {
    CHECK(table.restore(bad).code() == Code::invalid_argument);
  }
  CHECK(table.path(0).alpha().value == nominal::wire.alpha);
  for (std::size_t length = 0; length < good.size(); ++length) {
    const Error ignored = table.restore(good.substr(0, length));
  }
}

}  // namespace pith::test
