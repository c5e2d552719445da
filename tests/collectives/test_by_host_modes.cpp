// hierarchy=host in every mode of a call: pairs, gradients added in place, numbers that are not
// finite, saved states, other hosts, ranks that die; nothing is lost.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/collectives/host_layouts.hpp"
#include "tests/collectives/interruption.hpp"
#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

namespace {

constexpr const char* schemes[] = {
    "topk:density=0.2",    "topk:density=0.2,exchange=split",
    "ar-topk:density=0.2", "ar-topk:density=0.2,election=variance",
    "exdyna:density=0.2",  "micro:density=0.2,rule=released",
    "deft:density=0.2",
};

SparseCase case_on(std::vector<int> hosts, const std::string& spec) {
  SparseCase c;
  c.ranks = static_cast<int>(hosts.size());
  c.hosts = std::move(hosts);
  c.spec = spec + ",hierarchy=host";
  return c;
}

std::vector<float> sum_of(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> sum(a);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

// Ranks that ended well learn afterwards that others did not: all that survive then hold what they
// had, to the bit. False where the call ended before the interruption.
bool interrupt(const SparseCase& c, int calls_before, const Interruption& where,
               std::string& failure) {
  SparseProgram program(c);
  const auto world = world_with_hosts(c);
  failure = program.begin(*world, calls_before);
  if (!failure.empty()) return false;
  const std::vector<std::vector<float>> all = program.owed_by_all();
  const auto [reached, errors] = interrupt_call(program, *world, where);
  for (int r = 0; r < c.ranks && failure.empty(); ++r) {
    const Error& error = errors[static_cast<std::size_t>(r)];
    if (!world->ended(r)) failure = fmt::format("rank {} never ends", r);
    if (error.code() == Code::internal) failure = error.message();
    if (!where.survived_by(r)) continue;
    for (std::size_t t = 0; t < c.counts.size() && failure.empty(); ++t) {
      Compressor& compressor = program.compressor(r, t);
      compressor.return_after(world->compute(r), static_cast<std::uint32_t>(calls_before));
      if (program.residual(r, t) != all[static_cast<std::size_t>(r) * c.counts.size() + t]) {
        failure = fmt::format("rank {}: gradients are lost in tensor {}", r, t);
      }
      if (compressor.step != static_cast<std::uint64_t>(calls_before)) failure = "another step";
    }
  }
  failure += world->leaks();
  return reached;
}

}  // namespace

TEST_CASE("an end at any step by host loses no gradient", "[sparse][by-host][abort]") {
  for (const char* scheme : schemes) {
    SparseCase c = case_on({0, 0, 1, 1, 1}, scheme);
    c.counts = {60, 0, 20};
    CHECK(interrupt_everywhere(c, 2, 3, interrupt) == "");
    c.spec += ",values=bf16";
    CHECK(interrupt_everywhere(c, 1, 7, interrupt) == "");
  }
  SparseCase c = case_on({0, 0, 1, 1}, schemes[0]);
  c.counts = {60};
  CHECK(interrupt_everywhere(c, 2, 1, interrupt) == "");
}

TEST_CASE("an end among many ranks by host loses no gradient", "[sparse][by-host][abort]") {
  const int ranks = full && !sanitized ? 256 : 32;
  std::vector<int> hosts;
  for (int r = 0; r < ranks; ++r) hosts.push_back(r / 8);
  for (const char* scheme : schemes) {
    SparseCase c = case_on(hosts, scheme);
    c.counts = {1000, 30};
    c.jitter_s = 1e-3;
    SparseProgram program(c);
    const auto world = world_with_hosts(c);
    INFO(describe(c));
    REQUIRE(program.begin(*world, 1) == "");
    const std::uint64_t steps = steps_of_call(program, *world);
    CHECK(interrupt_everywhere(c, 1, steps / 3 + 1, interrupt) == "");
  }
}

// The failed call and the one before, which others had not completed.
TEST_CASE("two calls by host are undone exactly", "[sparse][by-host][abort]") {
  for (const char* scheme : schemes) {
    const SparseCase c = case_on({0, 0, 1, 1, 1}, scheme);
    SparseProgram program(c);
    const auto world = world_with_hosts(c);
    program.draw(0);
    REQUIRE(program.step(*world) == "");
    program.draw(1);
    const std::vector<std::vector<float>> before = program.owed_by_all();
    REQUIRE(program.step(*world) == "");
    program.draw(2);
    for (int r = 0; r < c.ranks; ++r) {
      world->revoke(r, Error(Code::remote, "an abort"));
    }
    run_ranks(*world, [&](Call& call, int r) { return program.start(call, r); });
    for (int r = 0; r < c.ranks; ++r) {
      program.compressor(r).return_after(world->compute(r), 1);
      const auto at = static_cast<std::size_t>(r);
      const std::vector<float> expected = sum_of(before[at], program.gradient(r));
      const std::vector<float> found = program.residual(r);
      for (std::size_t i = 0; i < found.size(); ++i) {
        REQUIRE(std::fabs(found[i] - expected[i]) <= 1e-6f);  // added up in another order
      }
      CHECK(program.compressor(r).step == 1);
    }
  }
}

// 16-bit gradients: test_sparse_narrow.cpp.
TEST_CASE("any form of a call by host", "[sparse][by-host]") {
  for (const char* scheme : schemes) {
    CHECK(check_conserved(case_on({0, 1, 1, 0, 1, 2, 2}, scheme), 4) == "");
  }
}

TEST_CASE("numbers that are not finite, by host", "[sparse][by-host]") {
  for (const char* scheme : schemes) {
    for (const char* rule : {"", ",nonfinite=drop"}) {
      const SparseCase c = case_on({0, 0, 1, 1, 1}, scheme + std::string(rule));
      for (const std::size_t where : {0, 700}) {
        for (const int rank : {0, 1, 3, 4}) CHECK(check_nonfinite(c, rank, where) == "");
      }
    }
  }
}

TEST_CASE("a saved state by host goes on with the same bits", "[sparse][by-host]") {
  for (const char* scheme : schemes) CHECK(check_saved(case_on({0, 0, 1, 1, 1}, scheme)) == "");
}

namespace {

// What has been given and not delivered, which the residuals must be.
class Ledger {
 public:
  explicit Ledger(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) balance_.emplace_back(count);
  }

  // Of the step that the program has just made; empty is good.
  std::string enter(SparseProgram& program) {
    const int ranks = program.sparse_case().ranks;
    for (std::size_t t = 0; t < balance_.size(); ++t) {
      std::vector<double> left(balance_[t].size());
      for (int r = 0; r < ranks; ++r) {
        const std::vector<float> residual = program.residual(r, t);
        for (std::size_t e = 0; e < left.size(); ++e) {
          balance_[t][e] += double(program.gradient(r, t)[e]);
          left[e] -= double(residual[e]);
        }
      }
      for (std::size_t e = 0; e < left.size(); ++e) {
        balance_[t][e] -= double(program.result(0, t)[e]);
        if (std::fabs(left[e] + balance_[t][e]) < 1e-5) continue;
        return fmt::format("tensor {}, element {}: {} is lost", t, e, left[e] + balance_[t][e]);
      }
    }
    return {};
  }

 private:
  std::vector<std::vector<double>> balance_;
};

std::string run_steps(SparseProgram& program, World& world, Ledger& ledger, std::uint64_t first) {
  for (std::uint64_t step = first; step < first + 2; ++step) {
    program.draw(step);
    std::string failure = program.step(world);
    if (failure.empty()) failure = ledger.enter(program);
    if (!failure.empty()) return fmt::format("step {}: {}", step, failure);
  }
  return {};
}

// As another communicator does.
void forget_calls(SparseProgram& program) {
  const SparseCase& c = program.sparse_case();
  for (int r = 0; r < c.ranks; ++r) {
    for (std::size_t t = 0; t < c.counts.size(); ++t) program.compressor(r, t).forget_delivered();
  }
}

}  // namespace

// As after a shrink, or in another job.
TEST_CASE("other hosts than before", "[sparse][by-host]") {
  const std::vector<std::vector<int>> layouts = {{0, 0, 1, 1, 1}, {0, 0, 0, 1, 1}, {0, 1, 2, 3, 4},
                                                 {0, 1, 0, 1, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 1, 2},
                                                 {0, 0, 1, 1, 1}};
  for (const char* scheme : schemes) {
    SparseCase c = case_on(layouts[0], scheme);
    c.counts = {300, 2};
    SparseProgram program(c);
    const auto world = world_with_hosts(c);
    Ledger ledger(c.counts);
    std::uint64_t step = 0;
    for (const std::vector<int>& hosts : layouts) {
      world->set_hosts(hosts);
      forget_calls(program);
      INFO(describe(c));
      REQUIRE(run_steps(program, *world, ledger, step) == "");
      step += 2;
    }
    CHECK(world->leaks() == "");
  }
}

namespace {

// Each rank at these places in turn, of hosts that stay as they are; slices differ in size, and of
// the second tensor one is empty.
std::string change_places(const char* scheme, bool forgets) {
  const std::vector<int> hosts_of_places = {0, 0, 1, 1, 1};
  SparseCase c = case_on(hosts_of_places, scheme);
  c.counts = {301, 1};
  SparseProgram program(c);
  const auto world = world_with_hosts(c);
  Ledger ledger(c.counts);
  std::uint64_t step = 0;
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2, 3, 4}, {1, 0, 4, 2, 3}, {4, 3, 2, 1, 0}, {0, 1, 2, 3, 4}}) {
    std::vector<int> hosts(order.size());
    for (std::size_t place = 0; place < order.size(); ++place) {
      hosts[static_cast<std::size_t>(order[place])] = hosts_of_places[place];
    }
    world->set_order(RankOrder(order));
    world->set_hosts(hosts);
    if (forgets) forget_calls(program);
    const std::string failure = run_steps(program, *world, ledger, step);
    if (!failure.empty()) return fmt::format("{}: {}", describe(c), failure);
    step += 2;
  }
  return world->leaks();
}

}  // namespace

TEST_CASE("other places on the same hosts than before", "[sparse][by-host]") {
  for (const char* scheme : schemes) CHECK(change_places(scheme, true) == "");
}

// As a state that was loaded would be.
TEST_CASE("a slice that is not the rank's any more is not used", "[sparse][by-host]") {
  CHECK(change_places(schemes[0], false) == "");
}

TEST_CASE("scaled residuals by host", "[sparse][by-host]") {
  const SparseCase c = case_on({0, 0, 1, 1}, "topk:density=0.01");
  SparseProgram program(c);
  const auto world = world_with_hosts(c);
  program.draw(0);
  REQUIRE(program.step(*world) == "");
  for (int r = 0; r < c.ranks; ++r) {
    std::vector<float> expected = program.residual(r);
    for (float& value : expected) value *= 4;
    program.compressor(r).scale(world->compute(r), 4);
    CHECK(program.residual(r) == expected);
    double squares = 0;
    for (const float value : expected) squares += double(value) * double(value);
    CHECK(program.compressor(r).residual_squares(world->compute(r)) == Approx(squares));
  }
}

}  // namespace pith::test
