// The kind of memory that all buffers of a test program are: the host's, or a device's, on whose
// streams its calls then run. The host may look into both, for the device is the stub's.
#pragma once

#include <cstddef>

#include "pith/pith.h"

namespace ranks {

char* allocate(std::size_t bytes, bool registered);
void release(char* memory, bool registered);
// The one that calls of this thread run on; NULL where memory is the host's.
pithStream_t stream_of_thread();
void wait_for_stream();
// With how many ranks bodies are run at most.
int most_ranks_everywhere();

}  // namespace ranks
