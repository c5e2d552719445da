// Prints a record of choices, once or each time that a running job replaces it.
#pragma once

#include <string>

#include "core/error.hpp"

namespace pith_explain {

pith::Error show_choices(const std::string& path);
// Waits for the file. Returns when the communicator that writes it has ended.
pith::Error follow_choices(const std::string& path);

}  // namespace pith_explain
