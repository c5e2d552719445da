// The matrices of which a compressor's vector consists, as its user states them.
#pragma once

#include <span>

#include "compress/compressor.hpp"

namespace pith {

// The elements of all matrices, or an error if they are more than a vector may have.
Expected<std::size_t> elements_of(std::span<const MatrixShape> matrices);
// Between calls. Changes nothing where the scheme has no use for it. An error if the compressor
// already works with others.
Error state_matrices(Compressor& compressor, std::span<const MatrixShape> matrices);

}  // namespace pith
