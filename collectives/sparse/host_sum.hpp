// The dense half of hierarchy=host: the sum of a slice over the ranks of one host.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// A vector of slices, one after another. Slice i belongs to rank i of the host.
struct HostSum {
  std::byte* vector = nullptr;    // float32, all slices; must not change until all owners are
                                  // known to have read it
  std::span<const Range> slices;  // elements; owners are the first ranks
  std::byte* sum = nullptr;       // of an owner; in: its own contribution; out: the sum
  bool hidden = false;            // peers cannot reach the vector: slices go by messages
  bool flag = false;              // in: this rank's; out, on an owner: any rank's
  std::size_t chunk_elements = 1;
};

// Owners read the other ranks' vectors in place, or copy them chunk by chunk, if they reach them;
// else the slices go by messages. An owner adds the other slices to its own in rank order.
Task<Error> sum_in_host(Call& host, HostSum& sum, Traffic& traffic);

}  // namespace pith
