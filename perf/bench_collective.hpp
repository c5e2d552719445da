// What the collectives timed by bench_common.hpp make of the ranks' data: float32, sums where they
// reduce, root 0 where they have one. A size is that of all blocks together, as in nccl-tests.
#pragma once

#include <cstddef>
#include <string>

#include "bench_common.hpp"

namespace CLI {
class App;
}

namespace pith_bench {

// By the names of --collective.
std::string name_of(Collective collective);
// The programs of a library that has nothing but an all-reduce go without it.
void add_collective_option(CLI::App& app, Settings& settings);

// A whole number of blocks, where there is one of each rank.
std::size_t whole_count(Collective collective, std::size_t count, int ranks);
// What a rank sends and what it finds in `recv` then, as parts of `count`; a broadcast's root has
// only its `send`.
std::size_t sent_count(Collective collective, std::size_t count, int ranks);
std::size_t received_count(Collective collective, std::size_t count, const World& world);

// 0..1023, without a pattern, so that swapped or repeated blocks show. Sums of up to 2^14 ranks are
// exact in float32.
float element(std::size_t index, int rank, int pass);
// Of the received elements.
float expected_element(Collective collective, std::size_t index, std::size_t count,
                       const World& world, int pass);

// What a link carries at the least, as a part of the size; as nccl-tests count it.
double bus_factor(Collective collective, int ranks);

}  // namespace pith_bench
