// Every compression scheme, whichever it is, in every way in which it may be called: beside its
// plain reference, and what all of them must keep. See scheme_conformance.hpp.
#include <algorithm>
#include <limits>
#include <set>

#include "tests/catch.hpp"
#include "tests/collectives/hard_gradients.hpp"
#include "tests/collectives/mode_program.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

template <class Each>
void for_each_variant(double density, Each each) {
  for (const SchemeTest& test : scheme_tests()) {
    for (const std::string& variant : test.variants) each(test, spec_of(test, variant, density));
  }
}

SparseCase case_of(const std::string& spec, int ranks, std::vector<std::size_t> counts) {
  SparseCase c;
  c.spec = spec;
  c.ranks = ranks;
  c.counts = std::move(counts);
  return c;
}

// Those that have a residual, of calls that elect elements (or also of those that send all).
std::vector<std::string> keeping_specs(double density, bool all = false) {
  std::vector<std::string> specs = specs_of(scheme_tests(), density);
  std::erase_if(specs, [all](const std::string& text) {
    const Spec spec = *Spec::parse(text);
    return spec.sparse() ? !spec.feedback : !all || !keeps_rest(spec);
  });
  return specs;
}

}  // namespace

TEST_CASE("every scheme is tested, and has an exchange of its name", "[sparse][schemes]") {
  std::set<std::string_view> tested;
  for (const SchemeTest& test : scheme_tests()) tested.insert(test.scheme);
  for (const Scheme* scheme : schemes()) {
    INFO(scheme->name);
    // Averages are no sums: test_sparse_gossip.cpp. Of `auto`: test_compressed_auto.cpp.
    const bool wanted = scheme->lacks.empty() && !scheme->averages_parameters &&
                        scheme->electors != Electors::as_chosen;
    CHECK(tested.count(scheme->name) == (wanted ? 1 : 0));
    const auto all = exchanges();
    CHECK(std::any_of(all.begin(), all.end(), [&](const SparseExchange& exchange) {
      return exchange.name == scheme->exchange;
    }));
    CHECK_FALSE(scheme->summary.empty());
    CHECK((scheme->electors == Electors::leader) == (scheme->checks.may_lead != nullptr));
    const Spec spec = Spec::of(*scheme);
    CHECK(&spec.stated() == scheme);
    CHECK(*Spec::parse(spec.text()) == spec);
    CHECK(Spec::unpack(spec.pack()) == spec);
  }
}

TEST_CASE("every scheme is its plain reference, bit for bit", "[sparse][schemes]") {
  const std::vector<int> some = {1, 2, 3, 4, 5, 8, 16, 17};
  std::vector<int> all;
  for (int ranks = 1; ranks <= 17; ++ranks) all.push_back(ranks);
  const double densities[] = {0.1, 0.033, 0.011, 0.01, 0.004, 0.001, 0.5, 1};
  std::size_t turn = 0;
  int which = 0;
  for (const SchemeTest& test : scheme_tests()) {
    for (const std::string& variant : test.variants) {
      for (const int ranks : full ? all : some) {
        if (!is_turn(which++, 0, 3)) continue;
        for (const std::size_t count : {1, 2, 5, 100, 1000, 4099}) {
          SparseCase c = case_of(spec_of(test, variant, densities[turn % 8]), ranks, {count});
          c.average = turn++ % 3 == 0;
          CHECK(check_beside_reference(test, c, {}) == "");
        }
      }
    }
  }
}

TEST_CASE("every scheme remembers what its reference does", "[sparse][schemes]") {
  constexpr std::size_t counts[] = {100, 5000, 33000};
  int which = 0;
  for_each_variant(0.01, [&](const SchemeTest& test, const std::string& spec) {
    ++which;
    for (const int many : {0, 1}) {
      if (!is_turn(which, many, 2)) continue;
      const int ranks = many == 0 ? 3 : 8;
      // Residuals alone are the same matter for any number of ranks.
      if (!full && many == 1 && Spec::parse(spec)->scheme->sections.empty()) continue;
      const Walk walk{.steps = test.many_steps + 6 * ranks};
      for (int i = 0; i < 3; ++i) {
        if (!full && i != (many == 0 ? which / 2 % 3 : which / 2 % 2)) continue;
        CHECK(check_beside_reference(test, case_of(spec, ranks, {counts[i]}), walk) == "");
      }
    }
  });
}

TEST_CASE("many tensors in one call of every scheme", "[sparse][schemes]") {
  constexpr int sizes[] = {1, 2, 4, 7};
  int which = 0;
  for_each_variant(0.02, [&](const SchemeTest& test, const std::string& spec) {
    ++which;
    for (int i = 0; i < 4; ++i) {
      if (!is_turn(which, i, 4)) continue;
      const int ranks = sizes[i];
      SparseCase c = case_of(spec, ranks, {10, 0, 3000, 3, 500, 1, 64});
      CHECK(check_beside_reference(test, c, {.steps = 2 * ranks + 3}) == "");
      // In several parcels, which leave while later ones are selected from.
      c.counts = {10, 0, 70000, 3, 100000, 1};
      c.chunk_bytes = 1024;
      if (ranks < 7) CHECK(check_beside_reference(test, c, {.steps = 5}) == "");
      c.counts = {0, 0};
      CHECK(check_beside_reference(test, c, {.steps = 2}) == "");
    }
  });
}

// A forecast that promises too much is replaced, tensor by tensor; one that promises too little is
// not exact.
TEST_CASE("every scheme follows magnitudes that jump", "[sparse][schemes][long]") {
  const float factors[] = {1, 1, 1, 10, 10, 10, 1, 0.1f, 1000, 1000, 1e-3f, 1, 1, 1};
  const auto jump = [&](SparseProgram& program, int step) {
    const SparseCase& c = program.sparse_case();
    for (int r = 0; r < c.ranks; ++r) {
      for (const std::size_t t : {0, 2, 3}) {
        for (float& value : program.gradient(r, t)) {
          value = c.integers ? std::round(value * factors[step]) : value * factors[step];
        }
      }
    }
  };
  int which = 0;
  for_each_variant(0.01, [&](const SchemeTest& test, const std::string& spec) {
    ++which;
    for (const int ranks : {1, 3}) {
      // Every day every third variant, by turns alone and among three.
      if (!is_turn(which, ranks, 6)) continue;
      if (!full && !Spec::parse(spec)->sparse()) continue;  // it has no forecast
      SparseCase c = case_of(spec, ranks, {150000, 100000, 100, 75000});
      c.chunk_bytes = 1024;
      CHECK(check_beside_reference(test, c, {.steps = 14, .change = jump}) == "");
    }
  });
}

TEST_CASE("gradients that leave every scheme little choice", "[sparse][schemes][long]") {
  int which = 0;
  for (const Change& change : hard_gradients()) {
    for_each_variant(0.05, [&](const SchemeTest& test, const std::string& spec) {
      ++which;
      for (const std::size_t count : {100, 70000}) {
        if (count > 100 && !is_turn(which, 0, 4)) continue;
        SparseCase c = case_of(spec, 3, {count});
        c.chunk_bytes = 1024;
        CHECK(check_beside_reference(test, c, {.steps = 5, .change = change}) == "");
      }
    });
  }
}

// Of each exchange one scheme, and those that move or keep something else; the elections and
// reductions of leaders; with --full `topk` in all its ways. By host: test_by_host_modes.cpp.
// Gossip: test_sparse_gossip.cpp.
TEST_CASE("many ranks, whose messages come in any order", "[sparse][schemes]") {
  const int ranks = full && !sanitized ? 256 : 32;
  const std::set<std::string_view> others = {"lossless", "efsign", "dgc", "ok-topk", "micro"};
  const std::set<std::string_view> of_leaders = {"election=variance", "election=variance-lagged",
                                                 "reduction=ring", "reduction=tree"};
  std::set<std::string_view> done;
  const auto is_another = [&](const SchemeTest& test, const std::string& variant) {
    if (full && test.scheme == "topk") return true;
    if (test.scheme == "ar-topk" && of_leaders.count(variant) > 0) return true;
    if (variant != test.variants[0]) return false;
    return done.insert(Spec::parse(test.scheme)->scheme->exchange).second ||
           others.count(test.scheme) > 0;
  };
  for (const SchemeTest& test : scheme_tests()) {
    for (const std::string& variant : test.variants) {
      if (!is_another(test, variant)) continue;
      SparseCase c = case_of(spec_of(test, variant, 0.05), ranks, {1000, 30});
      c.jitter_s = 1e-3;
      CHECK(check_beside_reference(test, c, {.steps = 2}) == "");
      // With --full a death, and an abort, at the begin and after each third of the call.
      CHECK(check_interrupted(c, 1, steps_of_call(c, 1) / 3 + 1) == "");
    }
  }
}

TEST_CASE("every scheme in any order of the ranks", "[sparse][schemes]") {
  for_each_variant(0.05, [](const SchemeTest& test, const std::string& spec) {
    // What is rounded in that order, or by the ranks of shares.
    const Spec parsed = *Spec::parse(spec);
    const bool by_shares = parsed.scheme->electors == Electors::each_then_owners;
    if (test.sends_fractions) return;
    if (!parsed.sparse() || (by_shares && parsed.values != DType::f32)) return;
    CHECK(check_beside_reference(test, case_of(spec, 4, {5000}),
                                 {.steps = 9, .order = {2, 3, 1, 0}}) == "");
    CHECK(check_beside_reference(test, case_of(spec, 4, {300, 40, 7}),
                                 {.steps = 9, .order = {3, 0, 1, 2}}) == "");
  });
}

TEST_CASE("no scheme loses anything, in any form of a call", "[sparse][schemes]") {
  constexpr int sizes[] = {1, 2, 5, 8};
  int which = 0;
  for (const std::string& spec : keeping_specs(0.02, true)) {
    ++which;
    for (int i = 0; i < 4; ++i) {
      SparseCase c = case_of(spec, sizes[i], {10, 0, 30000, 3, 5000, 1});
      if (is_turn(which, i, 4)) CHECK(check_conserved(c, 6) == "");
      c.chunk_bytes = 64;  // parcels and rounds
      if (sizes[i] != 8 && is_turn(which + 1, i, 4)) CHECK(check_conserved(c, 4) == "");
    }
  }
}

TEST_CASE("numbers that are not finite reach every rank, or none", "[sparse][schemes]") {
  for (const std::string& spec : keeping_specs(0.1)) {
    for (const char* rule : {"propagate", "drop"}) {
      for (const std::size_t where : {0, 170, 299}) {
        const std::string text = fmt::format("{},nonfinite={}", spec, rule);
        CHECK(check_nonfinite(case_of(text, 3, {300, 40}), 1, where) == "");
      }
      SparseCase streamed = case_of(fmt::format("{},nonfinite={}", spec, rule), 3, {140000});
      streamed.chunk_bytes = 1024;
      CHECK(check_nonfinite(streamed, 0, 7) == "");
    }
  }
}

TEST_CASE("numbers that are not finite reach every rank, if nothing is elected",
          "[sparse][schemes]") {
  for (const SchemeTest& test : scheme_tests()) {
    for (const std::string& variant : test.variants) {
      const std::string spec = spec_of(test, variant, 0.1);
      if (Spec::parse(spec)->sparse()) break;
      for (const std::size_t where : {0, 299}) {
        CHECK(check_nonfinite(case_of(spec, 3, {300, 0, 40}), 1, where) == "");
      }
      if (!full && variant != test.variants[0]) continue;
      CHECK(check_nonfinite(case_of(spec, 3, {1400000}), 0, 1399999) == "");  // several parcels
    }
  }
}

// Wherever it is: it is not taken for a rank's bad gradient, which would be kept.
TEST_CASE("a sum that overflows is gone in the next step", "[sparse][schemes]") {
  for (const char* spec :
       {"none", "bf16", "int8", "fp8", "qsgd", "terngrad", "natural", "efsign", "onebit",
        "3lc:block=512", "int8:feedback=1", "powersgd", "fp16", "int8:map=dynamic", "bounded",
        "bounded:feedback=1", "lossless", "atomo"}) {
    if (!Spec::parse(spec)) continue;  // this build lacks something for it
    for (const std::size_t where : {0, 700}) {
      SparseProgram program(case_of(spec, 2, {1000}));
      World world(world_of(program.sparse_case()));
      INFO(spec << " at " << where);
      for (std::uint64_t step = 0; step < 3; ++step) {
        program.draw(step);
        if (step == 0) {
          for (int r = 0; r < 2; ++r) program.gradient(r)[where] = 3e38f;
        }
        CHECK(program.step(world) == "");
        const std::vector<float>& result = program.result(0);
        const auto nans =
            std::count_if(result.begin(), result.end(), [](float x) { return x != x; });
        const std::ptrdiff_t block = rank_of(*Spec::parse(spec)) > 0 ? 1000 : 512;
        CHECK(nans <= (step == 0 ? block : 0));
      }
    }
  }
}

// Sparse results are written parcel by parcel; the last one has a NaN.
TEST_CASE("what is written before a NaN is found is kept", "[sparse][schemes]") {
  for (const char* spec : {"bf16", "int8", "sign", "efsign", "onebit", "signum", "bounded",
                           "bounded:feedback=1", "lossless"}) {
    if (!Spec::parse(spec)) continue;  // as above
    ModeProgram modes(case_of(spec, 3, {140000, 300000}), {.pairs = true});
    World world(world_of(modes.program.sparse_case()));
    INFO(spec);
    modes.program.draw(0);
    modes.program.gradient(1, 1)[299999] = std::numeric_limits<float>::quiet_NaN();
    for (const Error& error : modes.step(world)) CHECK_FALSE(error);
    for (int r = 0; r < 3; ++r) CHECK(modes.program.residual(r) == modes.program.gradient(r));
  }
}

TEST_CASE("results of any scheme are dense on some ranks and pairs on others",
          "[sparse][schemes]") {
  for (const std::string& spec : specs_of(scheme_tests(), 0.05)) {
    SparseCase c = case_of(spec, 3, {300000, 0, 5000});  // several parcels
    ModeProgram modes(c, {.pairs = true, .mixed = true});
    World world(world_of(c));
    INFO(describe(c));
    for (int step = 0; step < 2; ++step) {
      modes.program.draw(static_cast<std::uint64_t>(step));
      for (const Error& error : modes.step(world)) CHECK_FALSE(error);
      CHECK(modes.unpack() == "");
      for (std::size_t t = 0; t < c.counts.size(); ++t) {
        for (int r = 1; r < c.ranks; ++r) CHECK(modes.result(r, t) == modes.result(0, t));
      }
    }
  }
}

TEST_CASE("saved and loaded, every scheme goes on with the same bits", "[sparse][schemes]") {
  for (const std::string& spec : specs_of(scheme_tests(), 0.05)) {
    for (const int ranks : {1, 4}) CHECK(check_saved(case_of(spec, ranks, {2000, 0, 70})) == "");
  }
}

TEST_CASE("an end at any step of any scheme loses no gradient", "[sparse][schemes][abort]") {
  int which = 0;
  for (const std::string& spec : specs_of(scheme_tests(), 0.2)) {
    ++which;
    for (int ranks = 2; ranks <= 4; ++ranks) {
      if (!is_turn(which, ranks - 2, 3)) continue;
      CHECK(check_interrupted(case_of(spec, ranks, {60, 0, 20}), ranks, 1) == "");
    }
  }
}

// What has been written must not be added: results take the place of gradients.
TEST_CASE("an end at any step of a streamed call loses no gradient", "[sparse][schemes][abort]") {
  for (const std::string& spec : keeping_specs(0.1, true)) {
    SparseCase c = case_of(spec, 3, {600, 0, 200});
    c.chunk_bytes = 16;  // rounds of an exclusive election
    c.in_place = true;
    CHECK(check_interrupted(c, 3, 3) == "");
  }
  for (const char* spec : {"topk:density=0.01,exchange=direct", "topk:density=0.01,exchange=ring",
                           "ar-topk:density=0.01", "ar-topk:density=0.01,election=variance",
                           "ar-topk:density=0.01,values=f16"}) {
    SparseCase c = case_of(spec, 3, {140000});
    c.chunk_bytes = 1024;
    c.in_place = true;
    CHECK(check_interrupted(c, 3, 9) == "");
  }
}

}  // namespace pith::test
