// A file that is replaced as a whole, so that a reader never finds a part of it.
#pragma once

#include <string>

#include "core/error.hpp"

namespace pith {

// Waits for the disk.
Error replace_file(const std::string& path, const std::string& text);

}  // namespace pith
