// What two ranks mean by one call of a communicator, in words.
#pragma once

#include <string>

#include "control/call_note.hpp"

namespace pith {

// "count 1000 against 2000, type float against half"; of collectives that differ, or schemes, only
// what both have. Empty where nothing that is noted differs.
std::string difference_of(const CallNote& one, const CallNote& other);
// The call's words, and of what is said briefly there, a compressor's keys, those that differ.
std::string words_beside(const CallNote& call, const CallNote& other);

}  // namespace pith
