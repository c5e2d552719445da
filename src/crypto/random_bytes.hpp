// Random bytes of the system, good enough for secrets.
#pragma once

#include <cstddef>
#include <span>

#include "core/error.hpp"

namespace pith {

Error fill_random(std::span<std::byte> bytes);

}  // namespace pith
