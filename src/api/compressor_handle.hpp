// The handle of a compressor in the C API.
#pragma once

#include <memory>

#include "compress/compressor.hpp"
#include "pith/pith.h"

struct pithCompressor {
  std::shared_ptr<pith::Compressor> state;  // shared with calls in flight
};
