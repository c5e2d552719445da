// What rounding may change in calls that send every element in few bits (Scheme::coding), or with
// a bound on its error (Scheme::varying).
#pragma once

#include <cstddef>
#include <span>

#include "core/sparse/coding.hpp"
#include "core/sparse/varying_coding.hpp"

namespace pith_perf {

// Adds to allowed[i] by how much coding may change values[i], or any value whose distance from it
// is at most allowed[i]. The first value begins a block.
void add_coding_error(const pith::Coding& coding, std::span<const double> values,
                      std::span<double> allowed);
void add_coding_error(const pith::VaryingCoding& coding, std::span<const double> values,
                      std::span<double> allowed);

}  // namespace pith_perf
