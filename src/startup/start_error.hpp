// What a rank says that cannot go on in a start-up, for a cause of its own.
#pragma once

#include "core/error.hpp"

namespace pith {

// Names the rank, where the message is of its system and does not name one.
Error as_of_rank(int rank, const Error& error);
// What the other ranks get.
Error as_seen_elsewhere(const Error& error);

}  // namespace pith
