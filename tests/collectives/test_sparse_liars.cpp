// A rank that sends what cannot be read: the error names it as the caller counts ranks, wherever it
// is in the order, on its host, or among the hosts.
#include "compress/deft/plan.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/host_layouts.hpp"

namespace pith::test {

namespace {

struct Saying {
  std::uint16_t lane = 0;
  std::vector<std::uint8_t> bytes;
};
using Sayings = std::vector<Saying>;

Task<Error> tell(Call& call, Sayings& sayings) {
  for (int to = 0; to < call.size(); ++to) {
    for (Saying& saying : sayings) {
      if (to == call.rank()) break;
      const Bytes bytes{reinterpret_cast<std::byte*>(saying.bytes.data()), saying.bytes.size()};
      Error error = co_await call.send(to, saying.lane, 0, bytes);
      if (error) co_return error;
    }
  }
  co_return Error();
}

// Empty: the call of this rank ends with an error that names the liar.
std::string blame(const SparseCase& c, int liar, int listener, Sayings sayings,
                  const std::string& what) {
  SparseProgram program(c);
  SimConfig config;
  config.ranks = c.ranks;
  World world(config);
  world.set_order(RankOrder({2, 3, 1, 0}));
  if (!c.hosts.empty()) world.set_hosts(c.hosts);
  program.draw(0);
  const std::vector<Error> errors = run_ranks(world, [&](Call& call, int rank) {
    return rank == liar ? tell(call, sayings) : program.start(call, rank);
  });
  const Error& error = errors[static_cast<std::size_t>(listener)];
  const std::string expected = fmt::format("rank {} sent {}", liar, what);
  if (error.message() == expected && error.rank() == liar) return {};
  return fmt::format("{}: \"{}\" of rank {}, expected \"{}\"", describe(c), error.message(),
                     error.rank(), expected);
}

SparseCase case_of(const char* spec) {
  SparseCase c;
  c.ranks = 4;
  c.spec = spec;
  return c;
}

const std::vector<std::uint8_t> nonsense(4, 0xff);

}  // namespace

TEST_CASE("who sends nonsense is named by the caller's rank", "[sparse][deft]") {
  for (int liar = 0; liar < 4; ++liar) {
    const int listener = (liar + 1) % 4;
    CHECK(blame(case_of("topk"), liar, listener, {{0, nonsense}}, "a list that cannot be read") ==
          "");
    CHECK(blame(case_of("exdyna"), liar, listener, {{4, nonsense}},
                "an election that cannot be read") == "");
  }
  SparseCase group = case_of("topk:exchange=split");
  group.counts = {3, 0, 900, 40};
  for (int liar = 0; liar < 4; ++liar) {
    CHECK(blame(group, liar, (liar + 1) % 4, {{0, nonsense}}, "a list that cannot be read") == "");
  }
  // Rank 0 tells the bins, and leads; ranks 1 and 2 pass no bins on. Rank 2 is next to it.
  const std::vector<std::uint8_t> bins(4 * deft_pieces(1000, 1000, 4), 4);
  CHECK(blame(case_of("deft"), 0, 3, {{4, bins}}, "bins that do not exist") == "");
  for (const int liar : {1, 2}) {
    CHECK(blame(case_of("deft"), liar, 0, {{0, nonsense}}, "indices that cannot be read") == "");
  }
  CHECK(blame(case_of("ar-topk"), 0, 2, {{0, nonsense}}, "indices that cannot be read") == "");
}

// Each other rank's elements are in blocks within the bound, of a byte each: a byte more is no part
// of them.
TEST_CASE("who sends more than the values, or less, is named", "[sparse]") {
  SparseCase c = case_of("bounded:abs=1");
  c.counts = {512};
  constexpr std::uint16_t scatter_lane = 0;
  constexpr std::uint16_t gather_lane = 1;
  const std::vector<std::uint8_t> right = {0, 0, 0, 0, 0};
  const std::vector<std::uint8_t> more = {0, 0, 0, 0, 0, 0};
  const std::vector<std::uint8_t> less = {0, 0, 0, 0};
  for (int liar = 0; liar < 4; ++liar) {
    for (const auto& wrong : {more, less, nonsense}) {
      const std::string what = "values that cannot be decoded";
      const int listener = (liar + 1) % 4;
      CHECK(blame(c, liar, listener, {{scatter_lane, wrong}}, what) == "");
      CHECK(blame(c, liar, listener, {{scatter_lane, right}, {gather_lane, wrong}}, what) == "");
    }
  }
}

TEST_CASE("who sends nonsense by host is named by the caller's rank", "[sparse][by-host]") {
  SparseCase c = case_of("topk:hierarchy=host");
  for (int liar = 0; liar < 4; ++liar) {
    c.hosts.assign(4, 0);
    c.hosts[static_cast<std::size_t>(liar)] = 1;
    CHECK(blame(c, liar, (liar + 1) % 4, {{0, nonsense}}, "a list that cannot be read") == "");
  }
  // Inside a host. Where vectors are empty there is nothing to sum but a flag before.
  constexpr std::uint16_t flag_lane = 1;
  constexpr std::uint16_t head_lane = 8;
  c.counts = {0};
  c.hosts = {1, 0, 1, 0};
  for (int liar = 0; liar < 4; ++liar) {
    CHECK(blame(c, liar, (liar + 2) % 4, {{flag_lane, {0}}, {head_lane, {0, 0, 0, 0, 5, 0, 0, 0}}},
                "sums that cannot be read") == "");
  }
}

}  // namespace pith::test
