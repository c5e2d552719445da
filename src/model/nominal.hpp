// Links and cores of common hosts, assumed until links are measured: memory of some GB/s, a network
// of 10 Gbit/s. Every constant that a choice compares is here, once.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith::nominal {

// Seconds per message, per byte moved, per byte reduced, per further message of a round.
inline constexpr LinkCost memory{1e-6, 0.2e-9, 0.2e-9, 0.2e-6};
inline constexpr LinkCost wire{20e-6, 0.8e-9, 0.2e-9, 10e-6};
// Between sites a message takes this long or longer, and a byte as on 1 Gbit/s. If it were taken
// for 10 and were 1, algorithms that send the most bytes to save messages would overflow queues,
// and a stream that has lost packets takes many calls to recover.
inline constexpr double distant_alpha = 0x1p-10;  // a millisecond; alphas are rounded
inline constexpr double distant_beta = 8e-9;
constexpr bool is_distant(const LinkCost& link) { return link.alpha >= distant_alpha; }

// Of a compressed call: seconds for an element that is examined, for one that is written, and for a
// pair that a rank adds to its sum.
inline constexpr double select_element = 0.5e-9;
inline constexpr double write_element = 0.3e-9;
inline constexpr double add_pair = 8e-9;
// For an element that is coded with few bits and decoded again.
inline constexpr double code_element = 0.5e-9;
// For an element of a matrix that is decomposed, times the matrix's smaller side.
inline constexpr double decompose_element = 0.2e-9;
// Bytes of a pair of index and value.
inline constexpr double pair_bytes = 6;

// Seconds until a kernel on a core or a device begins; how many times faster than on a core the
// elements are then. Where link_table starts: no choice compares these yet.
inline constexpr double host_start = 100e-9;
inline constexpr double device_start = 5e-6;
inline constexpr double device_speed = 10;

}  // namespace pith::nominal
