// A compressor's state as bytes: little-endian, versioned, with a checksum.
//
//  magic, version, spec, type, count, scale | named sections of the scheme's state | residual
//  | checksum of all that
#pragma once

#include <cstddef>
#include <span>

#include "compress/compressor.hpp"

namespace pith {

std::size_t saved_bytes(const Compressor& compressor);
// Writes exactly saved_bytes().
void save(const Compressor& compressor, std::byte* out);
// Adds the residual; a new compressor also takes over scheme state, scale, count and type. Damaged
// bytes, and another version, spec or shape, are errors (invalid_argument) and change nothing.
Error load(Compressor& compressor, Compute& host, std::span<const std::byte> bytes);

}  // namespace pith
