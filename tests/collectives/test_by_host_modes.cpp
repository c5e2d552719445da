// hierarchy=host in every mode of a call: other types, pairs, gradients added in place, numbers
// that are not finite, saved states, other hosts, ranks that die; nothing is lost.
#include <algorithm>
#include <limits>

#include "compress/saved_state.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/host_layouts.hpp"
#include "tests/collectives/interruption.hpp"

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

namespace {

// Gradients given = results delivered + residuals, whatever the form of the call.
struct Form {
  DType type = DType::f32;
  bool pairs = false;
  bool in_place = false;
};

class FormProgram {
 public:
  FormProgram(const SparseCase& c, Form form) : program(c), form_(form) {
    const auto ranks = static_cast<std::size_t>(c.ranks);
    tensors_.resize(ranks);
    narrow_.resize(ranks);
    indices_.assign(ranks, std::vector<std::uint64_t>(c.counts[0]));
    pairs_.assign(ranks, 0);
    results.assign(ranks, std::vector<float>(c.counts[0]));
    raw_.assign(ranks, std::vector<std::byte>(c.counts[0] * 4));
  }

  std::string step(World& world) {
    for (const Error& error :
         run_ranks(world, [this](Call&call, int r) { return start(call, r); })) {
      if (error) return error.message();
    }
    for (std::size_t r = 0; r < results.size(); ++r) read(r);
    for (std::size_t r = 1; r < results.size(); ++r) {
      if (results[r] != results[0]) return fmt::format("rank {} differs", r);
    }
    return {};
  }

  SparseProgram program;
  std::vector<std::vector<float>> results;

 private:
  std::size_t count() const { return results[0].size(); }

  Task<Error> start(Call& call, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    Compressor& compressor = program.compressor(rank);
    std::vector<float>& gradient = program.gradient(rank);
    CompressedTensor& tensor = tensors_[r].emplace_back();
    tensor.compressor = &compressor;
    tensor.count = count();
    tensor.type = form_.type;
    tensor.recv = raw_[r].data();
    tensor.send = reinterpret_cast<const std::byte*>(gradient.data());
    HostCompute host;
    if (form_.type != DType::f32) {
      narrow_[r].resize(2 * count());
      host.run<ConvertKernel>({narrow_[r].data(), form_.type, tensor.send, DType::f32, count(), 1});
      host.run<ConvertKernel>({reinterpret_cast<std::byte*>(gradient.data()), DType::f32,
                               narrow_[r].data(), form_.type, count(), 1});
      tensor.send = narrow_[r].data();
    }
    if (form_.pairs) {
      tensor.sparse = {indices_[r].data(), raw_[r].data(), count(), &pairs_[r], nullptr};
    }
    if (form_.in_place) {
      compressor.shape(count(), DType::f32);
      float* accumulator = compressor.lend_accumulator(host);
      for (std::size_t i = 0; i < count(); ++i) accumulator[i] += gradient[i];
      tensor.send = reinterpret_cast<const std::byte*>(accumulator);
    }
    return allreduce_compressed(call, std::span(&tensor, 1), {});
  }

  void read(std::size_t r) {
    tensors_[r].clear();
    const std::size_t n = form_.pairs ? pairs_[r] : count();
    std::vector<float> values(n);
    HostCompute host;
    if (n > 0) {
      host.run<ConvertKernel>({reinterpret_cast<std::byte*>(values.data()), DType::f32,
                               raw_[r].data(), form_.type, n, 1});
    }
    if (!form_.pairs) return void(results[r] = values);
    std::fill(results[r].begin(), results[r].end(), 0.0f);
    for (std::size_t i = 0; i < n; ++i) {
      if (i > 0) REQUIRE(indices_[r][i] > indices_[r][i - 1]);
      results[r][indices_[r][i]] = values[i];
    }
  }

  Form form_;
  std::vector<std::vector<CompressedTensor>> tensors_;
  std::vector<std::vector<std::byte>> narrow_;
  std::vector<std::vector<std::uint64_t>> indices_;
  std::vector<std::size_t> pairs_;
  std::vector<std::vector<std::byte>> raw_;
};

std::string conserve(const SparseCase& c, Form form, int steps, double tolerance) {
  FormProgram forms(c, form);
  const auto world = world_with_hosts(c);
  std::vector<double> balance(c.counts[0]);
  for (int step = 0; step < steps; ++step) {
    forms.program.draw(static_cast<std::uint64_t>(step));
    if (std::string failure = forms.step(*world); !failure.empty()) return failure;
    for (std::size_t i = 0; i < balance.size(); ++i) {
      for (int r = 0; r < c.ranks; ++r) balance[i] += double(forms.program.gradient(r)[i]);
      balance[i] -= double(forms.results[0][i]);
    }
    std::vector<double> left(balance);
    for (int r = 0; r < c.ranks; ++r) {
      const std::vector<float> residual = forms.program.residual(r);
      for (std::size_t i = 0; i < left.size(); ++i) left[i] -= double(residual[i]);
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (std::fabs(left[i]) > tolerance) {
        return fmt::format("{}, step {}, element {}: {} is lost", describe(c), step, i, left[i]);
      }
    }
  }
  return world->leaks();
}

}  // namespace

TEST_CASE("any form of a call by host", "[sparse][by-host]") {
  for (const char* scheme : schemes) {
    const SparseCase c = case_on({0, 1, 1, 0, 1, 2, 2}, scheme);
    CHECK(conserve(c, {}, 4, 1e-5) == "");
    CHECK(conserve(c, {.pairs = true}, 4, 1e-5) == "");
    CHECK(conserve(c, {.in_place = true}, 4, 1e-5) == "");
    CHECK(conserve(c, {.type = DType::bf16}, 4, 4e-2) == "");
    CHECK(conserve(c, {.type = DType::f16, .pairs = true}, 4, 4e-3) == "");
  }
}

TEST_CASE("numbers that are not finite, by host", "[sparse][by-host]") {
  for (const char* scheme : schemes) {
    for (const bool drops : {false, true}) {
      SparseCase c = case_on({0, 0, 1, 1, 1}, scheme);
      if (drops) c.spec += ",nonfinite=drop";
      for (const int where : {0, 700}) {
        for (const int rank : {0, 1, 4}) {
          SparseProgram program(c);
          const auto world = world_with_hosts(c);
          for (std::uint64_t step = 0; step < 3; ++step) {
            program.draw(step);
            std::vector<std::vector<float>> before;
            for (int r = 0; r < c.ranks; ++r) before.push_back(program.residual(r));
            const auto at = static_cast<std::size_t>(where);
            if (step == 1) program.gradient(rank)[at] = std::numeric_limits<float>::infinity();
            REQUIRE(program.step(*world) == "");
            const auto is_nan = [](float x) { return x != x; };
            const bool all = std::ranges::all_of(program.result(3), is_nan);
            REQUIRE(all == (step == 1 && !drops));
            REQUIRE(std::ranges::any_of(program.result(3), is_nan) == all);
            REQUIRE(program.compressor(2).step == step + 1);
            if (!all) continue;
            for (int r = 0; r < c.ranks; ++r) {
              std::vector<float> expected = program.gradient(r);
              if (r == rank) expected[at] = 0;
              expected = sum_of(before[static_cast<std::size_t>(r)], expected);
              REQUIRE(program.residual(r) == expected);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a saved state by host goes on with the same bits", "[sparse][by-host]") {
  for (const char* scheme : schemes) {
    const SparseCase c = case_on({0, 0, 1, 1, 1}, scheme);
    SparseProgram first(c);
    const auto world = world_with_hosts(c);
    for (std::uint64_t step = 0; step < 3; ++step) {
      first.draw(step);
      REQUIRE(first.step(*world) == "");
    }
    SparseProgram second(c);
    const auto other = world_with_hosts(c);
    for (int r = 0; r < c.ranks; ++r) {
      std::vector<std::byte> bytes(saved_bytes(first.compressor(r)));
      save(first.compressor(r), bytes.data());
      REQUIRE_FALSE(load(second.compressor(r), other->compute(r), bytes));
      CHECK(second.residual(r) == first.residual(r));
    }
    for (std::uint64_t step = 3; step < 6; ++step) {
      first.draw(step);
      second.draw(step);
      REQUIRE(first.step(*world) == "");
      REQUIRE(second.step(*other) == "");
      CHECK(first.result(0) == second.result(0));
      for (int r = 0; r < c.ranks; ++r) CHECK(first.residual(r) == second.residual(r));
    }
  }
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
