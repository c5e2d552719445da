// How two ranks' versions of the same call differ, in words.
#pragma once

#include <string>

#include "control/call_note.hpp"

namespace pith {

// "count 1000 against 2000, type float against half"; compares only facts that both calls have.
// Empty where no recorded fact differs.
std::string difference_of(const CallNote& one, const CallNote& other);
// The call's text and, in parentheses, those compressor keys that differ.
std::string words_beside(const CallNote& call, const CallNote& other);

}  // namespace pith
