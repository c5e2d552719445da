// What every compression scheme must do, whichever it is: one table of the schemes with their plain
// references, and the walks that test_schemes.cpp and schemes from outside go through.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

// A scheme as its paper has it, on whole vectors, for all ranks at once.
class SchemeReference {
 public:
  virtual ~SchemeReference() = default;
  // The step that the program has just made, with the gradients that it holds. Empty is good.
  virtual std::string check(SparseProgram& program) = 0;
};

struct SchemeTest {
  std::string_view scheme;
  std::vector<std::string> variants;  // keys beside the density; "": none
  // Null where none is known for a spec.
  std::unique_ptr<SchemeReference> (*reference)(const SparseCase& c);
  // Whether the reference is exact only where sums are, in any order.
  bool (*needs_integers)(const Spec& spec) = nullptr;
  int many_steps = 12;  // that what it remembers needs to show
  // Whether of integers it sends fractions, whose sums depend on the order of the ranks.
  bool sends_fractions = false;
};

// Of every scheme in the library's table.
std::span<const SchemeTest> scheme_tests();

// A spec of the scheme: a density only where it has one.
std::string spec_of(const SchemeTest& test, const std::string& variant, double density);
// Of all variants of all these tests.
std::vector<std::string> specs_of(std::span<const SchemeTest> tests, double density);

// What becomes of the gradients drawn for a step.
using Change = std::function<void(SparseProgram& program, int step)>;
struct Walk {
  int steps = 4;
  Change change = {};
  std::vector<int> order = {};  // of the ranks; none: by rank
};

// Each step beside the reference, bit for bit. Empty is good, here and below.
std::string check_beside_reference(const SchemeTest& test, SparseCase c, const Walk& walk);
// Gradients given = results delivered + residuals, in every form of a call: dense, added by the
// caller to the accumulator, the result as pairs.
std::string check_conserved(const SparseCase& c, int steps);
// A NaN on one rank, and later an infinity: every rank gets nothing but NaN and keeps its gradient,
// or it is dropped.
std::string check_nonfinite(const SparseCase& c, int who, std::size_t where);
// Compressors that were saved and loaded go on with the same bits.
std::string check_saved(const SparseCase& c);
// A death, and an abort, at every `stride`-th step of the call after some others: survivors hold
// what they had; without feedback those whose call has ended well hold what they have sent.
std::string check_interrupted(const SparseCase& c, int calls_before, std::uint64_t stride);
// The steps of the simulation in the call after some others: what `stride` is a part of.
std::uint64_t steps_of_call(const SparseCase& c, int calls_before);

}  // namespace pith::test
