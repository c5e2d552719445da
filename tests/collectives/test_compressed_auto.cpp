// The scheme `auto`: its calls in each form, one after another, and what they leave behind. Ranks
// are told what to choose, so that no time of this machine decides.
#include <algorithm>
#include <string>
#include <vector>

#include "compress/saved_state.hpp"
#include "compress/scheme.hpp"
#include "kernels/host_compute.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/scheme_conformance.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

constexpr double density = 0.05;

// Of all forms.
std::string everything() {
  std::string text = "auto:density=0.01..0.5,bypass=auto,schemes=";
  for (const Form form : all_forms) {
    if (form != all_forms[0]) text += '+';
    text += name_of(form);
  }
  return text;
}

SparseCase case_of(const std::string& spec) {
  SparseCase c;
  c.ranks = 3;
  c.counts = {5000, 70, 0, 3000};
  c.spec = spec;
  return c;
}

// As if it had been agreed on.
void tell(SparseProgram& program, Form form) {
  const SparseCase& c = program.sparse_case();
  for (int r = 0; r < c.ranks; ++r) {
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      Compressor& compressor = program.compressor(r, t);
      compressor.density_control.density = is_elected(form) ? density : 1;
      compressor.density_control.form = form;
      compressor.density_control.next = compressor.step + 1000;
      compressor.set_state(compressor);
    }
  }
}

std::string plain_text(Form form) {
  if (form == Form::none) return "none";
  Spec spec = spec_of(form);
  if (is_elected(form)) {
    spec.density = density;
    spec.may_bypass = false;
  }
  return spec.text();
}

void check_same(SparseProgram& one, SparseProgram& other) {
  const SparseCase& c = one.sparse_case();
  for (std::size_t t = 0; t < c.counts.size(); ++t) {
    for (int r = 0; r < c.ranks; ++r) {
      INFO("rank " << r << ", tensor " << t);
      CHECK((one.result(r, t) == other.result(r, t)));
      CHECK((one.residual(r, t) == other.residual(r, t)));
    }
  }
}

// Each form after those before it, none among them.
std::vector<Form> in_turn() {
  std::vector<Form> forms;
  for (const Form form : all_forms) {
    forms.push_back(form);
    if (number_of(form) % 5 == 0) forms.push_back(Form::none);
  }
  return forms;
}

}  // namespace

TEST_CASE("calls of auto are those of the scheme that it has taken", "[sparse][auto]") {
  std::vector<Form> forms(all_forms.begin(), all_forms.end());
  forms.push_back(Form::none);
  for (const Form form : forms) {
    INFO(name_of(form));
    const SparseCase plain = case_of(plain_text(form));
    SparseProgram first(plain);
    SparseProgram second(case_of(everything()));
    World world_of_first(world_of(plain));
    World world_of_second(world_of(second.sparse_case()));
    for (std::uint64_t step = 0; step < 4; ++step) {
      first.draw(step);
      second.draw(step);
      tell(second, form);
      REQUIRE(first.step(world_of_first) == "");
      REQUIRE(second.step(world_of_second) == "");
      check_same(first, second);
      const CompressorStats& stats = second.compressor(0).stats;
      CHECK(stats.bypassed == (form == Form::none));
      if (is_coded(form)) CHECK(stats.algorithm == name_of(form));
      if (is_elected(form)) CHECK(stats.algorithm == first.compressor(0).stats.algorithm);
    }
  }
}

TEST_CASE("auto loses nothing when its scheme changes", "[sparse][auto]") {
  SparseCase c = case_of(everything());
  c.integers = true;
  SparseProgram program(c);
  World world(world_of(c));
  std::vector<std::vector<double>> left;
  for (const std::size_t count : c.counts) left.emplace_back(count);
  std::uint64_t step = 0;
  for (const Form form : in_turn()) {
    const bool keeps = !is_coded(form) || keeps_rest(spec_of(form));
    if (!keeps) continue;  // coding loses something
    INFO(name_of(form));
    tell(program, form);
    program.draw(step++);
    for (std::size_t t = 0; t < left.size(); ++t) {
      for (int r = 0; r < c.ranks; ++r) {
        for (std::size_t i = 0; i < left[t].size(); ++i) {
          left[t][i] += double(program.gradient(r, t)[i]);
        }
      }
    }
    REQUIRE(program.step(world) == "");
    double most_off = 0;
    for (std::size_t t = 0; t < left.size(); ++t) {
      for (std::size_t i = 0; i < left[t].size(); ++i) {
        left[t][i] -= double(program.result(0, t)[i]);
        double kept = 0;
        for (int r = 0; r < c.ranks; ++r) kept += double(program.residual(r, t)[i]);
        most_off = std::max(most_off, std::abs(left[t][i] - kept));
      }
    }
    CHECK(most_off < 1e-2);  // float32 of integers up to some thousand
  }
}

// What a call took returns, whatever the scheme of the call before it was.
TEST_CASE("calls of auto that not all ranks completed are undone", "[sparse][auto]") {
  SparseProgram program(case_of(everything()));
  World world(world_of(program.sparse_case()));
  HostCompute host;
  std::uint64_t step = 0;
  const auto make = [&](Form form) {
    tell(program, form);
    program.draw(step++);
    REQUIRE(program.step(world) == "");
  };
  for (const Form form : in_turn()) {
    INFO(name_of(form));
    make(Form::topk);
    Compressor& compressor = program.compressor(1, 0);
    const std::vector<float> before = program.residual(1, 0);
    const SchemeState state = compressor;
    make(form);
    const std::vector<float> given = program.gradient(1, 0);
    const std::uint32_t last = world.call(0).number();
    compressor.return_after(host, last - 1);
    const std::vector<float> after = program.residual(1, 0);
    double most_off = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      most_off = std::max(most_off, double(std::abs(after[i] - (before[i] + given[i]))));
    }
    CHECK(most_off < 1e-4);
    CHECK(compressor.step == state.step);
    // The others go on from there, too.
    for (int r = 0; r < 3; ++r) {
      for (std::size_t t = 0; t < 4; ++t) program.compressor(r, t).return_after(host, last - 1);
    }
  }
}

TEST_CASE("auto goes on from a saved state in every form", "[sparse][auto]") {
  HostCompute host;
  for (const Form form : in_turn()) {
    INFO(name_of(form));
    SparseProgram first(case_of(everything()));
    SparseProgram second(case_of(everything()));
    World world(world_of(first.sparse_case()));
    World other(world_of(first.sparse_case()));
    for (std::uint64_t step = 0; step < 3; ++step) {
      first.draw(step);
      tell(first, form);
      REQUIRE(first.step(world) == "");
    }
    for (int r = 0; r < 3; ++r) {
      for (std::size_t t = 0; t < 4; ++t) {
        Compressor& saved = first.compressor(r, t);
        saved.density_control.shares.fill(0.25F);
        std::vector<std::byte> bytes(saved_bytes(saved));
        save(saved, bytes.data());
        REQUIRE_FALSE(load(second.compressor(r, t), host, bytes));
        CHECK(second.compressor(r, t).spec() == saved.spec());
        CHECK(second.compressor(r, t).digest() == saved.digest());
        CHECK(second.compressor(r, t).density_control.shares == saved.density_control.shares);
      }
    }
    for (std::uint64_t step = 3; step < 6; ++step) {
      first.draw(step);
      second.draw(step);
      REQUIRE(first.step(world) == "");
      REQUIRE(second.step(other) == "");
      check_same(first, second);
    }
  }
}

// The times of this machine choose; whatever they do, ranks agree and nothing is lost.
TEST_CASE("auto with all schemes keeps what is due", "[sparse][auto]") {
  for (const char* spec : {"auto:schemes=topk+ar-topk+exdyna+spardl+onebit+efsign,bypass=never",
                           "auto:schemes=gtopk+ok-topk+randomk+micro+deft+3lc"}) {
    INFO(spec);
    CHECK(check_conserved(case_of(spec), 12) == "");
    SparseCase c = case_of(spec);
    c.counts = {2000, 100};
    CHECK(check_interrupted(c, 2, 3) == "");
    CHECK(check_nonfinite(c, 1, 170) == "");
  }
}

}  // namespace pith::test
