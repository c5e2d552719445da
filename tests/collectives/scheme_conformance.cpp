#include "tests/collectives/scheme_conformance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compress/saved_state.hpp"
#include "tests/collectives/host_layouts.hpp"
#include "tests/collectives/interruption.hpp"
#include "tests/collectives/mode_program.hpp"

namespace pith::test {

std::string spec_of(const SchemeTest& test, const std::string& variant, double density) {
  std::string spec(test.scheme);
  const std::span<const Key> keys = Spec::parse(spec)->scheme->keys;
  const bool elects =
      std::ranges::any_of(keys, [](const Key& key) { return key.name == "density"; });
  if (elects) spec += fmt::format(":density={}", density);
  if (!variant.empty()) spec += fmt::format("{}{}", elects ? ',' : ':', variant);
  return spec;
}

std::vector<std::string> specs_of(std::span<const SchemeTest> tests, double density) {
  std::vector<std::string> specs;
  for (const SchemeTest& test : tests) {
    for (const std::string& variant : test.variants) {
      specs.push_back(spec_of(test, variant, density));
    }
  }
  return specs;
}

std::string check_beside_reference(const SchemeTest& test, SparseCase c, const Walk& walk) {
  const Spec spec = *Spec::parse(c.spec);
  if (!walk.order.empty() || (test.needs_integers && test.needs_integers(spec))) c.integers = true;
  c.order = walk.order;
  const std::unique_ptr<SchemeReference> reference = test.reference(c);
  if (!reference) return {};
  SparseProgram program(c);
  World world(world_of(c));
  if (!walk.order.empty()) world.set_order(RankOrder(walk.order));
  for (int step = 0; step < walk.steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    if (walk.change) walk.change(program, step);
    std::string failure = program.step(world);
    if (failure.empty()) failure = reference->check(program);
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
  }
  return world.leaks();
}

std::string check_conserved(const SparseCase& c, int steps) {
  for (const Mode& mode : {Mode{}, Mode{.in_place = true}, Mode{.pairs = true}}) {
    // Gradients that were added already cannot be told from the residual.
    const Spec spec = *Spec::parse(c.spec);
    if (mode.in_place && (corrects_momentum(spec) || filters_residual(spec))) continue;
    std::string failure = conserve(c, mode, steps, 1e-6);
    if (failure.empty()) continue;
    return fmt::format("{}{}{}: {}", describe(c), mode.in_place ? ", in the accumulator" : "",
                       mode.pairs ? ", as pairs" : "", failure);
  }
  return {};
}

namespace {

// Every element of every tensor is NaN, or none is.
std::string count_nans(SparseProgram& program, bool expected) {
  for (std::size_t t = 0; t < program.sparse_case().counts.size(); ++t) {
    const std::vector<float>& result = program.result(2, t);
    const auto nans = std::count_if(result.begin(), result.end(), [](float x) { return x != x; });
    const auto all = static_cast<std::ptrdiff_t>(expected ? result.size() : 0);
    if (nans != all) return fmt::format("tensor {}: {} NaNs, expected {}", t, nans, all);
  }
  return {};
}

// Of the first tensor, where nothing has been delivered; what was not finite is gone.
std::string check_kept(SparseProgram& program, const std::vector<std::vector<float>>& before,
                       const std::vector<std::vector<float>>& added) {
  // A filter moves a part of the residual aside and back.
  const float rounding = filters_residual(program.compressor(0).spec()) ? 2e-7f : 0.0f;
  for (int r = 0; r < program.sparse_case().ranks; ++r) {
    const std::vector<float> after = program.residual(r);
    const std::vector<float>& old = before[static_cast<std::size_t>(r)];
    for (std::size_t i = 0; i < after.size(); ++i) {
      const float given = added[static_cast<std::size_t>(r)][i];
      const float kept = std::isfinite(given) ? old[i] + given : old[i];
      if (std::fabs(after[i] - kept) <= rounding * (std::fabs(kept) + std::fabs(old[i]))) continue;
      return fmt::format("rank {}: element {} is not kept", r, i);
    }
  }
  return {};
}

}  // namespace

std::string check_nonfinite(const SparseCase& c, int who, std::size_t where) {
  constexpr float spoilt[] = {0, std::numeric_limits<float>::quiet_NaN(), 0,
                              std::numeric_limits<float>::infinity(), 0};
  SparseProgram program(c);
  const auto world = world_with_hosts(c);
  for (std::size_t step = 0; step < std::size(spoilt); ++step) {
    program.draw(step);
    std::vector<std::vector<float>> before;
    for (int r = 0; r < c.ranks; ++r) before.push_back(program.residual(r));
    const bool spoils = spoilt[step] != 0;
    if (spoils) program.gradient(who)[where] = spoilt[step];
    std::vector<std::vector<float>> added;
    for (int r = 0; r < c.ranks; ++r) added.push_back(program.added(r));
    const bool delivers = !spoils || Spec::parse(c.spec)->drops_nonfinite;
    std::string failure = program.step(*world);
    if (failure.empty()) failure = count_nans(program, !delivers);
    if (failure.empty() && !delivers) failure = check_kept(program, before, added);
    if (program.compressor(2).step != step + 1) failure = "another step";
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
  }
  return world->leaks();
}

namespace {

std::string compare(SparseProgram& a, SparseProgram& b) {
  for (int r = 0; r < a.sparse_case().ranks; ++r) {
    for (std::size_t t = 0; t < a.sparse_case().counts.size(); ++t) {
      if (a.result(r, t) != b.result(r, t)) return "another result";
      if (a.residual(r, t) != b.residual(r, t)) return "another residual";
      if (a.compressor(r, t).digest() != b.compressor(r, t).digest()) return "another step";
    }
  }
  return {};
}

// Every compressor of `from` into that of `to`.
std::string hand_over(SparseProgram& from, SparseProgram& to) {
  HostCompute host;
  for (int r = 0; r < from.sparse_case().ranks; ++r) {
    for (std::size_t t = 0; t < from.sparse_case().counts.size(); ++t) {
      std::vector<std::byte> bytes(saved_bytes(from.compressor(r, t)));
      save(from.compressor(r, t), bytes.data());
      if (const Error error = load(to.compressor(r, t), host, bytes)) return error.message();
    }
  }
  return {};
}

}  // namespace

std::string check_saved(const SparseCase& c) {
  SparseProgram first(c);
  const auto world = world_with_hosts(c);
  std::string failure = first.begin(*world, 5);
  SparseProgram second(c);
  const auto other = world_with_hosts(c);
  if (failure.empty()) failure = hand_over(first, second);
  for (std::uint64_t step = 5; step < 9 && failure.empty(); ++step) {
    first.draw(step);
    second.draw(step);
    failure = first.step(*world);
    if (failure.empty()) failure = second.step(*other);
    if (failure.empty()) failure = compare(first, second);
  }
  return failure.empty() ? failure : fmt::format("{}: {}", describe(c), failure);
}

namespace {

// What a shrink does where others have not completed the call.
void take_back(SparseProgram& program, int rank, int calls_before) {
  HostCompute host;
  for (std::size_t t = 0; t < program.sparse_case().counts.size(); ++t) {
    program.compressor(rank, t).return_after(host, static_cast<std::uint32_t>(calls_before));
  }
}

// Without feedback only what was sent comes back of a call that has ended well, as it was sent:
// some of the elements, of the sign that the rank's own have.
bool is_sent(const Compressor& compressor, const std::vector<float>& kept,
             const std::vector<float>& owed) {
  constexpr float rounded = 1.01F;
  const float most = rounded * largest_sent(compressor.spec(), owed);
  std::size_t found = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] == 0) continue;
    ++found;
    if (kept[i] * owed[i] <= 0 || std::fabs(kept[i]) > most) return false;
  }
  const std::size_t elected = compressor.stats.selected_local;
  return found <= elected && (found > 0 || elected == 0);
}

// False where the call ended before the interruption.
bool interrupt(const SparseCase& c, int calls_before, const Interruption& where,
               std::string& failure) {
  SparseProgram program(c);
  World world(world_of(c));
  failure = program.begin(world, calls_before);
  if (!failure.empty()) return false;
  const std::vector<std::vector<float>> all = program.owed_by_all();
  const Spec spec = *Spec::parse(c.spec);
  const bool forgets = spec.sparse() && !spec.feedback;  // what it does not send
  const auto [reached, errors] = interrupt_call(program, world, where);
  bool undone = false;
  for (int r = 0; r < c.ranks; ++r) {
    undone |= where.survived_by(r) && errors[static_cast<std::size_t>(r)];
  }
  for (int r = 0; r < c.ranks && failure.empty(); ++r) {
    const Error& error = errors[static_cast<std::size_t>(r)];
    if (!world.ended(r)) failure = fmt::format("rank {} never ends", r);
    if (error.code() == Code::internal) failure = error.message();
    if (!undone || !where.survived_by(r)) continue;
    if (!error) take_back(program, r, calls_before);
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      const auto& expected = all[static_cast<std::size_t>(r) * c.counts.size() + t];
      const std::vector<float> kept = program.residual(r, t);
      const bool holds = forgets && !error ? is_sent(program.compressor(r, t), kept, expected)
                                           : about_equal(kept, expected, most_sent(c, expected));
      if (!holds) {
        failure = fmt::format("rank {}: gradients are lost in tensor {}", r, t);
      }
    }
  }
  failure += world.leaks();
  return reached;
}

}  // namespace

std::string check_interrupted(const SparseCase& c, int calls_before, std::uint64_t stride) {
  return interrupt_everywhere(c, calls_before, stride, interrupt);
}

std::uint64_t steps_of_call(const SparseCase& c, int calls_before) {
  SparseProgram program(c);
  World world(world_of(c));
  if (!program.begin(world, calls_before).empty()) return 0;  // which check_interrupted tells
  return steps_of_call(program, world);
}

}  // namespace pith::test
