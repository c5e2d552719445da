// density=auto in virtual time: groups whose vectors had densities of their own, and aborts of
// calls that begin with an agreement.
//
// Ranges are narrow, or ranks are told the density, so that no time of this machine decides.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/catch.hpp"
#include "tests/collectives/scheme_conformance.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// As if it had been agreed on in calls of this vector alone.
void tell_density(SparseProgram& program, std::size_t tensor, double density,
                  Form form = Form::none) {
  for (int r = 0; r < program.sparse_case().ranks; ++r) {
    Compressor& compressor = program.compressor(r, tensor);
    compressor.density_control.density = density;
    compressor.density_control.form = form;
    compressor.density_control.next = compressor.step + 1000;
    compressor.set_state(compressor);
  }
}

class Balance {
 public:
  explicit Balance(SparseProgram& program) : program_(program) {
    for (const std::size_t count : program.sparse_case().counts) left_.emplace_back(count);
  }
  void step(World& world) {
    const SparseCase& c = program_.sparse_case();
    program_.draw(step_++);
    for (std::size_t t = 0; t < left_.size(); ++t) {
      for (int r = 0; r < c.ranks; ++r) add(t, program_.gradient(r, t), 1);
    }
    REQUIRE(program_.step(world) == "");
    for (std::size_t t = 0; t < left_.size(); ++t) add(t, program_.result(0, t), -1);
  }
  // What was not delivered is in the residuals; gradients are integers.
  void check() {
    for (std::size_t t = 0; t < left_.size(); ++t) {
      for (int r = 0; r < program_.sparse_case().ranks; ++r) add(t, program_.residual(r, t), -1);
      CHECK(std::count(left_[t].begin(), left_[t].end(), 0) == std::ssize(left_[t]));
    }
  }

 private:
  void add(std::size_t tensor, const std::vector<float>& values, double sign) {
    std::vector<double>& left = left_[tensor];
    for (std::size_t i = 0; i < left.size(); ++i) left[i] += sign * double(values[i]);
  }

  SparseProgram& program_;
  std::vector<std::vector<double>> left_;
  std::uint64_t step_ = 0;
};

}  // namespace

TEST_CASE("vectors that had densities of their own get one when they meet", "[sparse][density]") {
  struct Meeting {
    const char* spec;
    double first;
    double second;
    Form first_form = Form::none;
    Form second_form = Form::none;
  };
  const Meeting all[] = {
      {"topk:density=auto,bypass=never", 0.002, 0.09},
      {"topk:density=auto,bypass=never", 0.09, 0.002},
      {"topk:density=auto,exchange=ring,bypass=never", 0.002, 0.09},
      {"topk:density=auto,exchange=split,bypass=never", 0.002, 0.09},
      {"topk:density=auto,exchange=recursive-doubling,bypass=never", 0.002, 0.09},
      {"topk:density=auto,bypass=auto", 0.002, 1},
      {"topk:density=auto,bypass=auto", 1, 0.002},
      {"topk:density=0.01..1,bypass=never", 0.01, 1},
      {"ar-topk:density=auto,bypass=never", 0.002, 0.09},
      {"ar-topk:density=auto,bypass=auto", 0.002, 1},
      {"ar-topk:density=auto,election=variance,bypass=never", 0.09, 0.002},
      {"exdyna:density=auto,bypass=auto", 0.002, 1},
      {"exdyna:density=auto,bypass=never", 0.002, 0.09},
      {"deft:density=auto,bypass=auto", 0.002, 1},
      {"deft:density=auto,bypass=never", 0.09, 0.002},
      {"topk:density=auto,quantise=bf16,bypass=never", 0.002, 1, Form::none, Form::bf16},
      {"topk:density=auto,quantise=bf16", 1, 0.002, Form::bf16, Form::none},
      {"topk:density=auto,quantise=auto", 1, 1, Form::bf16, Form::none},
      {"ar-topk:density=auto,quantise=bf16,bypass=never", 0.002, 1, Form::none, Form::bf16},
      {"exdyna:density=auto,quantise=bf16,bypass=never", 1, 0.002, Form::bf16, Form::none},
      {"deft:density=auto,quantise=bf16", 1, 0.09, Form::bf16, Form::none},
      {"auto:bypass=never", 0.002, 0.09, Form::topk, Form::ar_topk},
      {"auto", 1, 0.002, Form::none, Form::topk},
      {"auto:schemes=exdyna+spardl,bypass=never", 0.03, 0.09, Form::exdyna, Form::spardl},
      {"auto:schemes=deft+onebit+bf16", 0.09, 1, Form::deft, Form::onebit},
      {"auto:schemes=deft+onebit+bf16", 1, 0.09, Form::bf16, Form::deft},
  };
  for (const Meeting& one : all) {
    INFO(one.spec << ", " << one.first << " and " << one.second);
    SparseCase c;
    c.ranks = 3;
    c.counts = {3000, 0, 20000};
    c.spec = one.spec;
    c.integers = true;
    SparseProgram program(c);
    World world(world_of(c));
    Balance balance(program);
    // What `auto` elects has a form, and all else is sent whole.
    const bool chooses = Spec::parse(one.spec)->chooses_scheme();
    const double usual = chooses && !is_elected(one.first_form) ? 1 : 0.03;
    const Form usual_form = chooses ? one.first_form : Form::none;
    tell_density(program, 0, usual, usual_form);
    for (int i = 0; i < 5; ++i) balance.step(world);
    tell_density(program, 0, one.first, one.first_form);
    tell_density(program, 1, usual, usual_form);
    tell_density(program, 2, one.second, one.second_form);
    balance.step(world);
    for (int r = 0; r < c.ranks; ++r) {
      for (const std::size_t t : {1, 2}) {
        const Compressor& compressor = program.compressor(r, t);
        CHECK(compressor.spec().density == one.first);
        CHECK(compressor.density_control.density == one.first);
        CHECK(compressor.spec().form == one.first_form);
        CHECK(compressor.stats.bypassed == program.compressor(0).spec().adapted_to_dense());
      }
    }
    balance.step(world);
    if (!is_coded(one.first_form)) balance.check();  // or the residuals are rounded
  }
}

TEST_CASE("an abort of a call that begins with an agreement on a density loses nothing",
          "[sparse][density]") {
  for (const char* spec : {"topk:density=0.1..0.101", "ar-topk:density=0.1..0.101",
                           "exdyna:density=0.1..0.101", "deft:density=0.1..0.101"}) {
    INFO(spec);
    SparseCase c;
    c.ranks = 3;
    c.counts = {2000, 100};
    c.spec = spec;
    CHECK(check_interrupted(c, 2, 1) == "");
  }
}

}  // namespace pith::test
