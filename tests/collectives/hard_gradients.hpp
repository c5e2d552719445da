// Gradients that leave a scheme little to choose from: all equal, all zero, denormal, one huge
// element, many ties. For at least three ranks and one tensor.
#pragma once

#include <cmath>
#include <vector>

#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

inline std::vector<Change> hard_gradients() {
  const auto set = [](SparseProgram& program, float factor, float value) {
    for (int r = 0; r < program.sparse_case().ranks; ++r) {
      for (float& element : program.gradient(r)) element = factor * element + value;
    }
  };
  // A power of two: squares of integers stay exact, as DEFT's twin needs them.
  constexpr float denormal = 0x1p-133f;
  return {
      [set](SparseProgram& program, int) { set(program, 0, 1); },
      [set](SparseProgram& program, int) { set(program, 0, 0); },
      [set](SparseProgram& program, int step) { set(program, 0, step % 2 == 0 ? 0.0f : 2.0f); },
      [set](SparseProgram& program, int) { set(program, 0, 1e-42f); },
      [set](SparseProgram& program, int) { set(program, denormal, 0); },
      [set](SparseProgram& program, int step) {
        set(program, 0, 0);
        program.gradient(step % 3)[5] = 1e30f;
      },
      [](SparseProgram& program, int) {
        for (int r = 0; r < 3; ++r) {
          for (float& element : program.gradient(r)) element = std::round(16 * element);
        }
      },
  };
}

}  // namespace pith::test
