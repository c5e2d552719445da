// Prints a record of choices, once or each time that a running job replaces it.
#pragma once

#include <string>

#include "choice_record.hpp"

namespace pith_explain {

// The record in a file.
pith::Expected<ChoiceRecord> load_choices(const std::string& path);
// As text, on a clear screen if it is one.
void print(const ChoiceRecord& record);
// Waits for the file. Returns when the communicator that writes it has ended.
pith::Error follow_choices(const std::string& path);

}  // namespace pith_explain
