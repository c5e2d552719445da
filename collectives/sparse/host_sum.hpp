// The dense half of hierarchy=host: the sum of a slice over the ranks of one host.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// A vector whose slices lie one behind the other: slice i belongs to rank i of the host.
struct HostSum {
  std::byte* vector = nullptr;    // float32, of all slices; stays as it is until all owners are
                                  // known to have read it
  std::span<const Range> slices;  // elements; owners are the first ranks
  std::byte* sum = nullptr;       // an owner's: in: what it adds itself; out: the sum
  bool hidden = false;            // nobody else reaches the vector: slices go by messages
  bool flag = false;              // in: of this rank; out, of an owner: of any rank
  std::size_t chunk_elements = 1;
};

// Ranks read each other's vectors in place, or copy them chunk by chunk, where they reach them;
// else the slices go by messages. An owner adds the other ranks' slices to its own in their order.
Task<Error> sum_in_host(Call& host, HostSum& sum, Traffic& traffic);

}  // namespace pith
